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


def mean_and_deviation(values, digits=3):
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else " (one seed)"
    return f"{statistics.fmean(values):.{digits}f}{deviation}"


def cell(rows):
    if not rows:
        return ""
    collapsed = any(row.get("collapse_step") for row in rows)
    return mean_and_deviation([float(row["val_loss"]) for row in rows]) + ("*" if collapsed else "")


def print_table(heading, columns, groups, cell_of):
    """A row for each (mixer, `heading`) of the groups, ordered by mixer; cell_of(group, column) fills a column, whose heading is
    columns[column]."""
    print(f"| mixer | {heading} | " + " | ".join(columns.values()) + " |\n|---|---|" + "---|" * len(columns))
    mixers = list(dict.fromkeys(mixer for mixer, _ in groups))
    for (mixer, name), group in sorted(groups.items(), key=lambda item: mixers.index(item[0][0])):
        print(f"| {mixer} | {name} | " + " | ".join(cell_of(group, column) for column in columns) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    groups = read(parser.parse_args().results)
    rates = sorted({rate for group in groups.values() for rate in group})
    print_table("change", {rate: f"{rate:g}" for rate in rates}, groups, lambda group, rate: cell(group.get(rate, [])))


if __name__ == "__main__":
    main()
