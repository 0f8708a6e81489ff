#!/usr/bin/env python3
"""Writes IMDb's reviews without labels as JSON lines, without those whose text one of the halves with labels has, too.

  experiments/write_unlabelled.py aclImdb_v1.tar.gz unlabelled
  metaformer predict --run RUN --json unlabelled/texts.jsonl
"""
import argparse
import json
from pathlib import Path

from write_reviews import read, with_line_breaks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    reviews, test, _ = read(arguments.archive)
    labelled = set(test.values()) | {text for (kind, _), text in reviews.items() if kind != "unsup"}
    texts = [text for (kind, _), text in sorted(reviews.items()) if kind == "unsup" and text not in labelled]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with open(arguments.folder / "texts.jsonl", "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": with_line_breaks(text)}, ensure_ascii=False) + "\n")
    print(f"{len(texts)} reviews")


if __name__ == "__main__":
    main()
