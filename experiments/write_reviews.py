#!/usr/bin/env python3
"""Writes IMDb's reviews as documents of a text: JSON lines in a file for training and a file for validation, each with all reviews of
its films. Takes the labelled training half and the unlabelled reviews, without texts that also occur in the test half.

  experiments/write_reviews.py aclImdb_v1.tar.gz reviews
  metaformer train --config xl_reviews.yaml --set data.path=reviews/train.jsonl --set data.validation_path=reviews/validation.jsonl
"""
import argparse
import hashlib
import json
import re
import tarfile
from pathlib import Path

REVIEW = re.compile(r"(train|test)/(pos|neg|unsup)/(\d+)_\d+\.txt$")
FILMS = re.compile(r"train/urls_(pos|neg|unsup)\.txt$")


def read(archive):
    """The reviews of both halves by (kind, id), and the films of the training half by the same keys."""
    halves, films = {"train": {}, "test": {}}, {}
    with tarfile.open(archive) as files:
        for member in files:
            review, list_of_films = REVIEW.search(member.name), FILMS.search(member.name)
            if not member.isfile() or not (review or list_of_films):
                continue
            text = files.extractfile(member).read().decode()
            if list_of_films:
                for number, line in enumerate(text.splitlines()):
                    films[list_of_films[1], number] = re.search(r"tt\d+", line)[0]
            else:
                halves[review[1]][review[2], int(review[3])] = text
    return halves["train"], halves["test"], films


def with_line_breaks(text):
    return text.replace("<br />", "\n")


def is_held_out(film, fraction):
    return int(hashlib.sha256(film.encode()).hexdigest()[:8], 16) < fraction * 2**32


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", type=float, default=0.02, help="fraction of the films, for validation")
    arguments = parser.parse_args()
    reviews, test, films = read(arguments.archive)
    test_texts = set(test.values())
    arguments.folder.mkdir(parents=True, exist_ok=True)
    counts = {"train": 0, "validation": 0, "of the test half": 0}
    with (open(arguments.folder / "train.jsonl", "w", encoding="utf-8") as train,
          open(arguments.folder / "validation.jsonl", "w", encoding="utf-8") as validation):
        for key, text in sorted(reviews.items()):
            if text in test_texts:
                counts["of the test half"] += 1
                continue
            held_out = is_held_out(films[key], arguments.held_out)
            counts["validation" if held_out else "train"] += 1
            line = json.dumps({"text": with_line_breaks(text)}, ensure_ascii=False)
            (validation if held_out else train).write(line + "\n")
    print(", ".join(f"{name}: {count} reviews" for name, count in counts.items()))


if __name__ == "__main__":
    main()
