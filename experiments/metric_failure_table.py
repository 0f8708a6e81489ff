#!/usr/bin/env python3
"""Prints the results of experiments/metric_failure.sh as a table: a row for each mixer and change, a column for each learning rate,
with the mean validation loss over the seeds and its standard deviation. An asterisk means that the program warned of collapsed
attention in at least one seed.

  experiments/metric_failure_table.py experiments/results/metric_failure.csv
"""
import argparse
import csv
import statistics
from pathlib import Path

RECIPE = {"train.steps", "train.schedule.warmup_steps", "model.dropout", "train.optimizer.weight_decay", "train.learning_rate",
          "model.mixer.kind"}


def change_of(overrides):
    """The changes of a run besides the mixer and the rate: "qk_norm=true values=own", or "none"."""
    changes = [word.removeprefix("model.mixer.").removeprefix("train.") for word in overrides if word.split("=")[0] not in RECIPE]
    return " ".join(changes).replace("optimizer.kind=", "") or "none"


def read(path):
    """(mixer, change) -> rate -> rows, in the order of the file."""
    groups = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            words = row["overrides"].replace(", ", ",").split()
            values = dict(word.split("=", 1) for word in words)
            group = groups.setdefault((values["model.mixer.kind"], change_of(words)), {})
            group.setdefault(float(values["train.learning_rate"]), []).append(row)
    return groups


def cell(rows):
    if not rows:
        return ""
    losses = [float(row["val_loss"]) for row in rows]
    deviation = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else " (one seed)"
    return f"{statistics.fmean(losses):.3f}{deviation}" + ("*" if any(row.get("collapse_step") for row in rows) else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    groups = read(parser.parse_args().results)
    rates = sorted({rate for group in groups.values() for rate in group})
    print("| mixer | change | " + " | ".join(f"{rate:g}" for rate in rates) + " |\n|---|---|" + "---|" * len(rates))
    mixers = list(dict.fromkeys(mixer for mixer, _ in groups))
    for (mixer, change), group in sorted(groups.items(), key=lambda item: mixers.index(item[0][0])):
        print(f"| {mixer} | {change} | " + " | ".join(cell(group.get(rate, [])) for rate in rates) + " |")


if __name__ == "__main__":
    main()
