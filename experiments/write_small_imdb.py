#!/usr/bin/env python3
"""Writes tables of IMDb's reviews for a classifier with few labels: training reviews, half of them positive, all reviews of the
held-out films in the training half for validation, and the test half. The training reviews have no held-out film, and no text
of the test half is in the other tables.

  experiments/write_small_imdb.py aclImdb_v1.tar.gz small_imdb
  metaformer train --config imdb_small.yaml
"""
import argparse
import hashlib
import json
from pathlib import Path

from write_reviews import is_held_out, read, with_line_breaks


def order(key):
    """A random order that is the same on every machine."""
    return hashlib.sha256(f"{key[0]} {key[1]}".encode()).hexdigest()


def choose(reviews, test, films, size, held_out):
    """Keys of the training reviews and of the validation reviews."""
    test_texts = set(test.values())
    keys = sorted((key for key, text in reviews.items() if key[0] != "unsup" and text not in test_texts), key=order)
    validation = [key for key in keys if is_held_out(films[key], held_out)]
    rest = [key for key in keys if not is_held_out(films[key], held_out)]
    train = [key for kind in ("pos", "neg") for key in [key for key in rest if key[0] == kind][: size // 2]]
    return sorted(train, key=order), validation


def write(path, reviews, keys):
    with open(path, "w", encoding="utf-8") as file:
        for key in keys:
            line = {"text": with_line_breaks(reviews[key]), "label": {"pos": "positive", "neg": "negative"}[key[0]]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{path}: {len(keys)} reviews")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reviews", type=int, default=1000, help="training reviews, half of them positive")
    parser.add_argument("--held-out", type=float, default=0.08, help="fraction of the films, for validation")
    arguments = parser.parse_args()
    reviews, test, films = read(arguments.archive)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    train, validation = choose(reviews, test, films, arguments.reviews, arguments.held_out)
    write(arguments.folder / "train.jsonl", reviews, train)
    write(arguments.folder / "validation.jsonl", reviews, validation)
    write(arguments.folder / "test.jsonl", test, sorted(test))


if __name__ == "__main__":
    main()
