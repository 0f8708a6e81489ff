#!/usr/bin/env python3
"""Writes a text of random lines, each written twice: the first line of a pair cannot be predicted, and the second only with
a memory of the first.

  experiments/write_repeats.py repeats.txt
"""
import argparse
import random
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--pairs", type=int, default=20000, help="number of lines that are written twice")
    parser.add_argument("--length", type=int, default=48, help="letters per line")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    lines = ("".join(draw.choices(LETTERS, k=arguments.length)) + "\n" for _ in range(arguments.pairs))
    arguments.text.parent.mkdir(parents=True, exist_ok=True)
    arguments.text.write_text("".join(2 * line for line in lines), encoding="ascii")


if __name__ == "__main__":
    main()
