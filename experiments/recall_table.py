#!/usr/bin/env python3
"""Prints the results of experiments/recall.sh, recall_published.sh or mad.sh as a table: a row for each mixer, a column for each cell of
tokens, pairs and width, or for each task of MAD, with the mean accuracy of the answers on the test rows over the seeds and its 95%
interval (Student's t). If a mixer has several settings in a cell, those with the highest mean accuracy on the validation rows.

  experiments/recall_table.py experiments/results/recall_tuned.csv
  experiments/recall_table.py --published experiments/results/recall_tuned.csv    the published figures beside ours, with a verdict
"""
import argparse
import csv
import math
import statistics
import sys
from pathlib import Path

from lib.best_draw import settings
from lib.student import t_975

# Accuracy in %, read off the figures of the papers, with an error of about 1: (mixer, tokens, pairs, width).
PUBLISHED = [
    ("Zoology, figure 2", {("scaled_dot_product", 64, 4, 64): 100, ("scaled_dot_product", 64, 4, 128): 100,
                           ("scaled_dot_product", 128, 8, 64): 100, ("scaled_dot_product", 128, 8, 128): 100,
                           ("hyena", 64, 4, 64): 52, ("hyena", 64, 4, 128): 75}),
    ("RWKV-6, figure 4", {("hyena", 64, 4, 64): 98}),
]
READING_ERROR = 1


def cell_of(values):
    """(tokens, pairs, width) of multi-query associative recall, or the name of a task of MAD."""
    if "task.pairs" in values:
        return tuple(int(values[key]) for key in ("task.length", "task.pairs", "model.width"))
    return "noisy_recall" if float(values.get("task.noise", 0)) > 0 else values["task.kind"]


def read(path):
    """(mixer, cell) -> accuracies in %, in the order of the file."""
    runs = {}  # (mixer, cell) -> overrides -> accuracies of the validation and of the test
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = dict(word.split("=", 1) for word in settings(row))
            of_cell = runs.setdefault((values["model.mixer.kind"], cell_of(values)), {})
            validation, test = of_cell.setdefault(row["overrides"], ([], []))
            validation.append(float(row["accuracy"]))
            test.append(100 * float(row["test_accuracy"]))
    return {key: max(of_cell.values(), key=lambda accuracies: statistics.fmean(accuracies[0]))[1] for key, of_cell in runs.items()}


def interval(values):
    """The mean and half the width of its 95% interval; None for a single value."""
    if len(values) < 2:
        return values[0], None
    half = t_975(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), half


def shown(values):
    if not values:
        return ""
    mean, half = interval(values)
    return f"{mean:.1f}" + (" (one seed)" if half is None else f" ± {half:.1f}")


def verdict(values, published):
    mean, half = interval(values)
    if half is None:
        return "one seed decides nothing"
    return "inside" if abs(mean - published) <= half + READING_ERROR else "outside"


def print_cells(cells):
    columns = dict.fromkeys(cell for _, cell in cells)
    heads = (column if isinstance(column, str) else "{} tokens, {} pairs, width {}".format(*column) for column in columns)
    print("| mixer | " + " | ".join(heads) + " |\n|---|" + "---|" * len(columns))
    for mixer in dict.fromkeys(mixer for mixer, _ in cells):
        print(f"| {mixer} | " + " | ".join(shown(cells.get((mixer, column))) for column in columns) + " |")


def print_published(cells):
    print("| mixer | tokens | pairs | width | source | published | ours | verdict |\n|---|---|---|---|---|---|---|---|")
    for source, figures in PUBLISHED:
        for (mixer, length, pairs, width), figure in figures.items():
            if values := cells.get((mixer, (length, pairs, width))):
                print(f"| {mixer} | {length} | {pairs} | {width} | {source} | {figure} | {shown(values)} | {verdict(values, figure)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--published", action="store_true")
    arguments = parser.parse_args()
    (print_published if arguments.published else print_cells)(read(arguments.results))


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, ValueError, IndexError) as error:  # StatisticsError is a ValueError
        sys.exit(f"these are not the results of the study, or too few of them: {error}")
