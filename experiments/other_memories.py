#!/usr/bin/env python3
"""Evaluates runs on the validation split with other memories than in training, and by the place of targets in their
window. Prints the losses as two tables, means over seeds, and writes every number into a CSV file.

  experiments/other_memories.py experiments/results/other_memories.csv runs/transformer_xl/*-[0-9]*
"""
import argparse
import csv
import json
import statistics
from pathlib import Path

from inspect_runs import ROOT, run

MEMORIES = (0, 16, 32, 64, 128, 256)


def variant_of(program, folder):
    config = json.loads(run(program, "config", "dump", "--json", "--config", Path(folder) / "config.yaml"))
    model = config["model"]
    name = f"{model['mixer']['kind']}, {model['positions']['kind']}, trained with memory {model['memory']}"
    return name, model["context"], config["train"]["seed"]


def loss(program, folder, memory):
    printed = run(program, "evaluate", "--run", folder, "--checkpoint", "last", "--json", "--set", f"model.memory={memory}")
    return json.loads(printed)["loss"]


def losses_by_place(program, folder):
    """Mean losses of the first eighth of a window, of the rest of its first half, and of the second half."""
    found = json.loads(run(program, "inspect", "--run", folder, "--checkpoint", "last", "--json", "--no-pictures", "--tokens", 2))
    entries = found["validation"]["loss_by_position"]
    segment = len(entries)
    means = {}
    for first, end in ((0, segment // 8), (segment // 8, segment // 2), (segment // 2, segment)):
        part = [entry for entry in entries if first <= entry["position"] < end]
        targets = sum(entry["targets"] for entry in part)
        means[f"{first + 1} to {end}"] = sum(entry["loss"] * entry["targets"] for entry in part) / targets
    return means


def print_table(rows, kind):
    rows = [row for row in rows if row["kind"] == kind]
    for context in sorted({row["context"] for row in rows}):
        own = [row for row in rows if row["context"] == context]
        columns = list(dict.fromkeys(row["value"] for row in own))
        print(f"\n| context {context}, {kind} | " + " | ".join(map(str, columns)) + " |\n|---|" + "---|" * len(columns))
        for variant in dict.fromkeys(row["variant"] for row in own):
            means = [statistics.fmean(row["loss"] for row in own if (row["variant"], row["value"]) == (variant, column))
                     for column in columns]
            print(f"| {variant} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    arguments = parser.parse_args()
    rows = []
    for folder in arguments.runs:
        variant, context, seed = variant_of(arguments.program, folder)
        base = {"variant": variant, "context": context, "seed": seed}
        rows += [{**base, "kind": "memory", "value": memory, "loss": loss(arguments.program, folder, memory)}
                 for memory in MEMORIES]
        rows += [{**base, "kind": "place", "value": place, "loss": mean}
                 for place, mean in losses_by_place(arguments.program, folder).items()]
    with open(arguments.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for kind in ("memory", "place"):
        print_table(rows, kind)


if __name__ == "__main__":
    main()
