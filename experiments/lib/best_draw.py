#!/usr/bin/env python3
"""Prints the --set arguments of the best run of a config in a results file, by what validation data say.

  best_draw.py experiments/results/shakespeare_draws.csv shakespeare_metric.yaml best_val_loss
  best_draw.py experiments/results/imdb_draws.csv imdb_metric.yaml best_val_error
"""
import argparse
import csv
import shlex
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a CSV file that a sweep wrote")
    parser.add_argument("config", help="as in its column config")
    parser.add_argument("column", help="of which the smallest value is the best")
    arguments = parser.parse_args()
    try:
        with open(arguments.results, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["config"] == arguments.config and row[arguments.column]]
    except (OSError, KeyError) as error:
        sys.exit(f"{arguments.results}: {error}")
    if not rows:
        sys.exit(f"{arguments.results}: no run of {arguments.config} with a value of {arguments.column}")
    best = min(rows, key=lambda row: float(row[arguments.column]))
    print(shlex.join(word for setting in best["overrides"].split() for word in ("--set", setting)))


if __name__ == "__main__":
    main()
