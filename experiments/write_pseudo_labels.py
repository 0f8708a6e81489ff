#!/usr/bin/env python3
"""Labels texts with the most probable class, by the mean over several classifiers, and writes a table for data.extra_path.

  metaformer predict --run RUN --json texts.jsonl > predictions.jsonl
  experiments/write_pseudo_labels.py texts.jsonl labelled.jsonl predictions.jsonl...
"""
import argparse
import json
import os
from collections import Counter
from pathlib import Path


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def label(predictions):
    """The label of one text by all classifiers."""
    probabilities = Counter()
    for prediction in predictions:
        probabilities.update(prediction["probabilities"])
    return max(probabilities, key=probabilities.get)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("predictions", type=Path, nargs="+")
    arguments = parser.parse_args()
    counts = Counter()
    unfinished = arguments.out.with_name("." + arguments.out.name)
    with open(unfinished, "w", encoding="utf-8") as file:
        files = [arguments.texts, *arguments.predictions]
        for text, *predictions in zip(*map(read_lines, files), strict=True):
            text["label"] = label(predictions)
            counts[text["label"]] += 1
            file.write(json.dumps(text, ensure_ascii=False) + "\n")
    os.replace(unfinished, arguments.out)
    print(", ".join(f"{name}: {count} texts" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
