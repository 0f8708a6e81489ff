#!/usr/bin/env python3
"""Does recall predict language? Spearman's rank correlation over mixers, between the accuracy of recall in one cell of
experiments/recall.sh and the bits per byte of language models, for each results file and corpus, with the 95% interval of a bootstrap
over the mixers (percentiles of 10,000 draws). At -1 mixers that recall more predict better.

  experiments/recall_language_table.py experiments/results/recall_tuned.csv experiments/results/subword_field.csv
  experiments/recall_language_table.py --mixers RECALL.csv LANGUAGE.csv...    the figures of each mixer
"""
import argparse
import csv
import json
import random
import statistics
import sys
from pathlib import Path

from lib.best_draw import settings as words_of

CELL = {"task.length": "64", "task.pairs": "4", "model.width": "64"}  # all mixers were trained in this cell


def read(path):
    """A results file's rows, each with its changed settings."""
    with open(path, newline="", encoding="utf-8") as file:
        return [(row, json.loads(row["settings"])) for row in csv.DictReader(file)]


def mixer_of(settings):
    return settings.get("model.mixer.kind", "scaled_dot_product") if "model.mixer" not in settings else None


def means(values):
    return {mixer: statistics.fmean(of_mixer) for mixer, of_mixer in values.items()}


def recall_scores(path):
    scores = {}
    for row, settings in read(path):
        overrides = dict(word.split("=", 1) for word in words_of(row))
        if CELL.items() <= overrides.items():
            scores.setdefault(mixer_of(settings), []).append(float(row["test_accuracy"]))
    return means(scores)


def language_losses(path):
    """corpus -> mixer -> bits per byte. The name of a corpus is that of its folder."""
    corpora = {}
    for row, settings in read(path):
        corpus = Path(settings["data.path"]).parent.name if "data.path" in settings else "shakespeare"
        if mixer := mixer_of(settings):
            corpora.setdefault(corpus, {}).setdefault(mixer, []).append(float(row["bits_per_byte"]))
    return {corpus: means(losses) for corpus, losses in corpora.items()}


def ranks(values):
    """Ranks from 1; equal values have the mean of their ranks."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def correlation(pairs):
    """Spearman's correlation; None if one side is constant."""
    x, y = (ranks(side) for side in zip(*pairs))
    return statistics.correlation(x, y) if len(set(x)) > 1 and len(set(y)) > 1 else None


def interval(pairs, draws=10_000, seed=1):
    generator = random.Random(seed)
    drawn = (correlation(generator.choices(pairs, k=len(pairs))) for _ in range(draws))
    found = sorted(value for value in drawn if value is not None)
    return found[int(0.025 * len(found))], found[int(0.975 * len(found))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recall", type=Path)
    parser.add_argument("language", type=Path, nargs="+")
    parser.add_argument("--mixers", action="store_true", help="print the figures of each mixer")
    arguments = parser.parse_args()
    recall = recall_scores(arguments.recall)
    corpora = {f"{path.stem}, {corpus}": losses for path in arguments.language for corpus, losses in language_losses(path).items()}
    if arguments.mixers:
        print("| mixer | recall % | " + " | ".join(corpora) + " |\n|---|---|" + "---|" * len(corpora))
        for mixer, score in sorted(recall.items(), key=lambda item: -item[1]):
            losses = (f"{of[mixer]:.4f}" if mixer in of else "" for of in corpora.values())
            print(f"| {mixer} | {100 * score:.1f} | " + " | ".join(losses) + " |")
        return
    print("| language models | mixers | rank correlation of recall and bits per byte (95% interval) |\n|---|---|---|")
    for name, losses in corpora.items():
        pairs = [(recall[mixer], losses[mixer]) for mixer in recall if mixer in losses]
        low, high = interval(pairs)
        print(f"| {name} | {len(pairs)} | {correlation(pairs):+.2f} ({low:+.2f} to {high:+.2f}) |")


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, ValueError, IndexError) as error:  # StatisticsError is a ValueError
        sys.exit(f"these are not the results of the study, or too few of them: {error}")
