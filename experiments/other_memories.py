#!/usr/bin/env python3
"""Evaluates runs with other memories than they were trained with, on the validation split. Prints the loss as a table, mean over
seeds, and writes every number into a CSV file.

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    arguments = parser.parse_args()
    rows = []
    for folder in arguments.runs:
        variant, context, seed = variant_of(arguments.program, folder)
        rows += [{"variant": variant, "context": context, "seed": seed, "memory": memory,
                  "loss": loss(arguments.program, folder, memory)} for memory in MEMORIES]
    with open(arguments.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| variant | " + " | ".join(map(str, MEMORIES)) + " |\n|---|" + "---|" * len(MEMORIES))
    for variant, context in dict.fromkeys((row["variant"], row["context"]) for row in rows):
        means = [statistics.fmean(row["loss"] for row in rows
                                  if (row["variant"], row["context"], row["memory"]) == (variant, context, memory))
                 for memory in MEMORIES]
        print(f"| {variant}, context {context} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")


if __name__ == "__main__":
    main()
