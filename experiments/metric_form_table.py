#!/usr/bin/env python3
"""Prints the forms of the mixers of experiments/metric_form.sh as a table: a row for each mixer and form, a column for each task,
with the mean of a validation score over the seeds and its standard deviation. Shakespeare by characters is read from the results of
experiments/metric_failure.sh, at the learning rate of the recipe.

  experiments/metric_form_table.py experiments/results/metric_failure.csv experiments/results/metric_form.csv
"""
import argparse
import csv
from pathlib import Path

from metric_failure_table import mean_and_deviation, print_table

RATE = "6.7e-3"
# Config -> heading, score, its unit, decimals.
TASKS = {"shakespeare_base.yaml": ("characters, loss", "val_loss", 1, 3),
         "imdb_base.yaml": ("IMDb, accuracy %", "accuracy", 100, 2),
         "sorter_hard_base.yaml": ("sorter, exact match %", "exact_match", 100, 2),
         "multi30k_short.yaml": ("Multi30k, loss", "val_loss", 1, 3)}
RECIPE = {"model.mixer.kind", "model.mixer.score_std"}


def form_of(words):
    """The options of the mixer: "values=own qk_norm=true", or "none"."""
    options = [word for word in words if word.startswith("model.mixer.") and word.split("=")[0] not in RECIPE]
    return " ".join(option.removeprefix("model.mixer.") for option in options) or "none"


def is_form(row, words):
    """Whether nothing but the form differs from the recipe."""
    if row["config"] != "shakespeare_base.yaml":
        return True
    others = {"train.optimizer.kind", "train.rate_factors", "model.mixer.score_std"}
    return f"train.learning_rate={RATE}" in words and not others & {word.split("=")[0] for word in words}


def read(paths):
    """(mixer, form) -> config -> rows, in the order of the files."""
    groups = {}
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                words = row["overrides"].split()
                if is_form(row, words):
                    kind = next(word.split("=")[1] for word in words if word.startswith("model.mixer.kind="))
                    groups.setdefault((kind, form_of(words)), {}).setdefault(row["config"], []).append(row)
    return groups


def cell(group, config):
    _, score, unit, digits = TASKS[config]
    values = [unit * float(row[score]) for row in group.get(config, [])]
    return mean_and_deviation(values, digits) if values else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    groups = {key: group for key, group in read(parser.parse_args().results).items() if "imdb_base.yaml" in group}
    print_table("form", {config: task[0] for config, task in TASKS.items()}, groups, cell)


if __name__ == "__main__":
    main()
