#!/usr/bin/env python3
"""Time and peak memory of training steps against context, depth and chunks: `metaformer bench step` with variants of one small
model, interleaved, each in its own process. Every step of a figure has the same number of tokens. Prints tables of medians,
and writes every number into a CSV file. --draw only draws such a file.

  experiments/long_contexts.py experiments/results/long_contexts.csv
  experiments/long_contexts.py experiments/results/long_contexts.csv --draw docs/figures/long_contexts.svg
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
from lib.line_figure import line_figure

TOKENS = 16384
MODEL = ["model.layers=2", "model.heads=4", "model.width=128", "model.dropout=0", "data.tokenizer=character",
         "train.eval_interval=100000", "train.learning_rate=1e-3"]
SINUSOIDS = ["model.positions=sinusoidal", "model.embedding.scale=none"]
ATTENTIONS = {
    "full": ["model.mixer=scaled_dot_product", "model.positions=rotary"],
    "full, matrix of scores": ["model.mixer={kind: scaled_dot_product, backend: reference}", "model.positions=rotary"],
    "metric": ["model.mixer=metric", "model.positions=rotary"],
    "LSH, 4 rounds": ["model.mixer={kind: lsh, chunk: 64, rounds: 4}", *SINUSOIDS],
    "LSH, 1 round": ["model.mixer={kind: lsh, chunk: 64, rounds: 1}", *SINUSOIDS],
}
CONTEXTS = (256, 1024, 4096, 16384)
MOST_SCORES = 4096  # the matrix of scores of longer contexts does not fit into the memory of a small machine


def variants():
    """(figure, variant, x, overrides)."""
    for context in CONTEXTS:
        for name, overrides in ATTENTIONS.items():
            if name != "full, matrix of scores" or context <= MOST_SCORES:
                yield "context", name, context, [f"model.context={context}", f"train.batch_size={TOKENS // context}", *overrides]
        # Half of the context is memory, so the window has half as many tokens.
        segment = context // 2
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


def medians(rows, figure, quantity):
    """{variant: {x: median}}."""
    found = {}
    for row in rows:
        if row["figure"] == figure:
            found.setdefault(row["variant"], {}).setdefault(int(row["x"]), []).append(float(row[quantity]))
    return {variant: {x: statistics.median(values) for x, values in by_x.items()} for variant, by_x in found.items()}


def print_table(rows, figure):
    times, memories = medians(rows, figure, "ms_per_step"), medians(rows, figure, "memory_mib")
    names = list(times)
    values = sorted({x for by_x in times.values() for x in by_x})
    print(f"\n| {figure} | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for x in values:
        cells = [f"{times[name][x]:.0f} ms, {memories[name][x]:.0f} MiB" if x in times[name] else "–" for name in names]
        print(f"| {x} | " + " | ".join(cells) + " |")


def draw(results, to):
    with open(results, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    panels = [(name, unit, {variant: list(by_x.items()) for variant, by_x in medians(rows, "context", quantity).items()})
              for name, unit, quantity in (("time of a step", "ms", "ms_per_step"), ("peak memory", "MiB", "memory_mib"))]
    to.write_text(line_figure(f"A training step of {TOKENS:,} tokens", "context in tokens", panels), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each variant, interleaved")
    parser.add_argument("--steps", type=int, default=3, help="steps of a measurement")
    parser.add_argument("--figures", nargs="+", default=["context", "depth", "chunks"])
    parser.add_argument("--draw", type=Path, metavar="SVG", help="draw the results against the context into this file")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.results, arguments.draw)
        return
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
