#!/usr/bin/env python3
"""Evaluates runs of experiments/reformer_copy.sh with other numbers of rounds of hashing than in training, and with full
attention. Prints the accuracy of the second half as a table (mean, smallest and largest over the seeds), and writes every number
into a CSV file.

  experiments/reformer_rounds.py experiments/results/reformer_rounds.csv runs/reformer_copy/*-[0-9]*
"""
import argparse
import csv
import json
import statistics
from pathlib import Path

from inspect_runs import ROOT, run

CHUNK = 16
ATTENTIONS = {"full": ["chunk=255"], **{str(rounds): [f"chunk={CHUNK}", f"rounds={rounds}"] for rounds in (8, 4, 2, 1)}}


def trained_with(program, folder):
    config = json.loads(run(program, "config", "dump", "--json", "--config", Path(folder) / "config.yaml"))
    mixer = config["model"]["mixer"]
    return "full" if mixer["chunk"] > CHUNK else str(mixer["rounds"]), config["train"]["seed"]


def accuracy(program, folder, attention, batches):
    options = [word for option in ATTENTIONS[attention] for word in ("--set", f"model.mixer.{option}")]
    printed = run(program, "evaluate", "--run", folder, "--checkpoint", "last", "--random-batches", batches, "--json", *options)
    return json.loads(printed)["accuracy"]


def percent(values):
    mean = f"{100 * statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({100 * min(values):.1f}–{100 * max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    parser.add_argument("--batches", type=int, default=20)
    arguments = parser.parse_args()
    rows = []
    for folder in arguments.runs:
        trained, seed = trained_with(arguments.program, folder)
        rows += [{"trained": trained, "evaluated": attention, "seed": seed,
                  "accuracy": accuracy(arguments.program, folder, attention, arguments.batches)} for attention in ATTENTIONS]
    with open(arguments.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| trained | " + " | ".join(ATTENTIONS) + " |\n|---|" + "---|" * len(ATTENTIONS))
    for trained in ATTENTIONS:
        found = {attention: [row["accuracy"] for row in rows if (row["trained"], row["evaluated"]) == (trained, attention)]
                 for attention in ATTENTIONS}
        if found["full"]:
            print(f"| {trained} | " + " | ".join(percent(values) for values in found.values()) + " |")


if __name__ == "__main__":
    main()
