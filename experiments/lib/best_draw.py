#!/usr/bin/env python3
"""Prints the --set arguments of the run of a config in a results file that has the best validation score.

  best_draw.py experiments/results/shakespeare_draws.csv shakespeare_metric_published.yaml best_val_loss
  best_draw.py experiments/results/imdb_strong_draws.csv imdb_scaled_dot_product.yaml best_val_error --without model.mixer.qk_norm=true
  best_draw.py experiments/results/mad_draws.csv mad_base.yaml accuracy --largest --with model.mixer.kind=hyena
"""
import argparse
import csv
import sys


def settings(row):
    """The KEY=VALUE words of a row; lists without spaces, so that a shell may split the output into words."""
    return row["overrides"].replace(", ", ",").split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a CSV file from a sweep")
    parser.add_argument("config", help="a value of its column config")
    parser.add_argument("column", help="the column whose smallest value is the best")
    parser.add_argument("--largest", action="store_true", help="the largest value is the best")
    parser.add_argument("--with", dest="needed", default=[], nargs="+", metavar="KEY=VALUE", help="only runs with these overrides")
    parser.add_argument("--without", dest="refused", default=[], nargs="+", metavar="KEY=VALUE", help="only runs without these overrides")
    arguments = parser.parse_args()
    needed, refused = set(arguments.needed), set(arguments.refused)
    try:
        with open(arguments.results, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["config"] == arguments.config and row[arguments.column]
                    and needed <= set(settings(row)) and not refused & set(settings(row))]
    except (OSError, KeyError) as error:
        sys.exit(f"{arguments.results}: {error}")
    if not rows:
        sys.exit(f"{arguments.results}: no run of {arguments.config} with a value of {arguments.column}")
    best = settings((max if arguments.largest else min)(rows, key=lambda row: float(row[arguments.column])))
    if any("=" not in setting for setting in best):
        sys.exit(f"{arguments.results}: {' '.join(best)}: a value with a space")
    print(" ".join(f"--set {setting}" for setting in best))


if __name__ == "__main__":
    main()
