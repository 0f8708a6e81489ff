#!/usr/bin/env python3
"""Time and peak memory of training steps against context, depth and chunks: `metaformer bench step` with variants of one small
model, a process for each, in turn. Every step has the same number of tokens. Prints tables, and writes every number into a CSV file.

  experiments/long_contexts.py experiments/results/long_contexts.csv
  experiments/long_contexts.py depth.csv --figures depth --rounds 1
"""
import argparse
import csv
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from inspect_runs import ROOT

TOKENS = 16384
MODEL = ["model.layers=2", "model.heads=4", "model.width=128", "model.dropout=0", "data.tokenizer=character",
         "train.eval_interval=100000", "train.learning_rate=1e-3"]
ATTENTIONS = {
    "full": ["model.mixer=scaled_dot_product", "model.positions=rotary"],
    "full, matrix of scores": ["model.mixer={kind: scaled_dot_product, backend: reference}", "model.positions=rotary"],
    "metric": ["model.mixer=metric", "model.positions=rotary"],
    "LSH, 4 rounds": ["model.mixer={kind: lsh, chunk: 64, rounds: 4}", "model.positions=sinusoidal"],
    "LSH, 1 round": ["model.mixer={kind: lsh, chunk: 64, rounds: 1}", "model.positions=sinusoidal"],
}
CONTEXTS = (256, 1024, 4096, 16384)
MOST_SCORES = 4096  # the matrix of scores of longer contexts does not fit into the memory of a small machine


def variants():
    """(figure, variant, x, overrides)."""
    for context in CONTEXTS:
        for name, overrides in ATTENTIONS.items():
            if name != "full, matrix of scores" or context <= MOST_SCORES:
                yield "context", name, context, [f"model.context={context}", f"train.batch_size={TOKENS // context}", *overrides]
        # Half of what a token sees is memory: the same reach in half as many tokens of a segment.
        segment = context // 2
        if context <= MOST_SCORES:
            yield "context", "Transformer-XL", context, [
                f"model.context={segment}", f"model.memory={segment}", f"train.batch_size={TOKENS // segment}",
                "model.mixer=scaled_dot_product", "model.positions=transformer_xl"]
    small = ["model.context=512", f"train.batch_size={TOKENS // 4 // 512}", *ATTENTIONS["full"]]
    for layers in (4, 8, 16, 32):
        for blocks in ("plain", "reversible"):
            yield "depth", blocks, layers, [*small, f"model.layers={layers}", f"model.blocks={blocks}"]
    for chunks in (1, 4, 16, 64):
        yield "chunks", "feed-forward", chunks, [*small, "model.feed_forward.ratio=32", f"model.feed_forward.chunks={chunks}"]
        yield "chunks", "loss", chunks, [*small, "data.tokenizer={kind: bpe, vocabulary: 4000, whitespace: kept}", f"train.loss_chunks={chunks}"]


def measure(program, text, overrides, steps):
    words = [word for override in [*MODEL, f"data.path={text}", *overrides] for word in ("--set", override)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write("task: language_model\n")
        config.flush()
        printed = subprocess.run([program, "bench", "step", "--config", config.name, *words, "--steps", str(steps), "--rounds", "1",
                                  "--warmup", "1", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(printed)


def print_table(rows, figure):
    names = list(dict.fromkeys(row["variant"] for row in rows if row["figure"] == figure))
    values = sorted({row["x"] for row in rows if row["figure"] == figure})
    print(f"\n| {figure} | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for x in values:
        cells = []
        for name in names:
            found = [row for row in rows if (row["figure"], row["variant"], row["x"]) == (figure, name, x)]
            cells.append(f"{statistics.median(r['ms_per_step'] for r in found):.0f} ms, "
                         f"{statistics.median(r['memory_mib'] for r in found):.0f} MiB" if found else "–")
        print(f"| {x} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each variant, in turn")
    parser.add_argument("--steps", type=int, default=3, help="steps of a measurement")
    parser.add_argument("--figures", nargs="+", default=["context", "depth", "chunks"])
    arguments = parser.parse_args()
    wanted = [variant for variant in variants() if variant[0] in arguments.figures]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        subprocess.run([ROOT / "experiments/write_repeats.py", text], check=True)
        for number in range(arguments.rounds):
            for figure, variant, x, overrides in wanted:
                found = measure(arguments.program, text, overrides, arguments.steps)
                rows.append({"figure": figure, "variant": variant, "x": x, "round": number,
                             "ms_per_step": round(found["ms_per_step"], 2),
                             "memory_mib": round(found["peak_memory_bytes"] / 2**20, 1)})
                print(*rows[-1].values(), flush=True)
    with open(arguments.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for figure in arguments.figures:
        print_table(rows, figure)


if __name__ == "__main__":
    main()
