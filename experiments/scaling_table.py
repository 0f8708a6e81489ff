#!/usr/bin/env python3
"""Prints the results of experiments/scaling.sh: for each mixer the power law L = a C^-b of bits per byte over the operations of training
(least squares in logarithms, without the largest size), its prediction for the largest size (95% interval for the mean of as many
runs), and the measured value there.

  experiments/scaling_table.py experiments/results/scaling_tuned.csv
  experiments/scaling_table.py --sizes experiments/results/scaling_tuned.csv    the losses of all sizes
"""
import argparse
import csv
import json
import math
import statistics
import sys
from pathlib import Path

from lib.student import t_975

TOKENS_PER_STEP = 1024
PASSES = 3  # a backward pass takes twice the operations of a forward pass


def read(path):
    """mixer -> parameters -> [(operations of the training, bits per byte)]"""
    mixers = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            mixer = json.loads(row["settings"]).get("model.mixer.kind", "scaled_dot_product")
            compute = float(row["operations_per_token"]) * PASSES * float(row["steps"]) * TOKENS_PER_STEP
            sizes = mixers.setdefault(mixer, {})
            sizes.setdefault(int(row["parameters"]), []).append((compute, float(row["bits_per_byte"])))
    return {mixer: dict(sorted(sizes.items())) for mixer, sizes in mixers.items()}


def fit(points):
    """The line through points (x, y): slope, intercept, residual deviation, mean of x and its sum of squares."""
    xs, ys = zip(*points)
    slope, intercept = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(xs)
    residual = sum((y - intercept - slope * x) ** 2 for x, y in points)
    return slope, intercept, math.sqrt(residual / (len(points) - 2)), mean, sum((x - mean) ** 2 for x in xs)


def print_sizes(mixers):
    for mixer, sizes in mixers.items():
        for parameters, runs in sizes.items():
            losses = [loss for _, loss in runs]
            deviation = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
            print(f"| {mixer} | {parameters:,} | {runs[0][0]:.2e} | {len(runs)} | {statistics.fmean(losses):.4f}{deviation} |")


def print_laws(mixers):
    for mixer, sizes in mixers.items():
        *smaller, largest = sizes
        points = [(math.log(compute), math.log(loss)) for size in smaller for compute, loss in sizes[size]]
        slope, intercept, deviation, mean, squares = fit(points)
        t = t_975(len(points) - 2)
        runs = sizes[largest]
        at = math.log(runs[0][0])
        predicted = intercept + slope * at
        half = t * deviation * math.sqrt(1 / len(runs) + 1 / len(points) + (at - mean) ** 2 / squares)
        low, high = math.exp(predicted - half), math.exp(predicted + half)
        measured = statistics.fmean(loss for _, loss in runs)
        verdict = "inside" if low <= measured <= high else "outside"
        print(f"| {mixer} | {-slope:.4f} ± {t * deviation / math.sqrt(squares):.4f} | {largest:,} | {math.exp(predicted):.4f} "
              f"({low:.4f} to {high:.4f}) | {measured:.4f} | {verdict} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--sizes", action="store_true")
    arguments = parser.parse_args()
    mixers = read(arguments.results)
    if arguments.sizes:
        print("| mixer | parameters | operations of the training | seeds | bits per byte |\n|---|---|---|---|---|")
        print_sizes(mixers)
    else:
        print("| mixer | b (95% interval) | largest size | predicted bits per byte (95% interval) | measured | verdict |\n"
              "|---|---|---|---|---|---|")
        print_laws(mixers)


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, ValueError, IndexError) as error:  # StatisticsError is a ValueError
        sys.exit(f"these are not the results of the study, or too few of them: {error}")
