#!/usr/bin/env python3
"""Prints the table of experiments/data_scale.py for docs/results/speed.md.

  experiments/data_scale_table.py experiments/results/data_scale.csv
"""
import csv
import sys


def size_of(row):
    size = int(row["bytes"])
    return f"{size // 10**9} GB" if size >= 10**9 else f"{size // 10**6} MB"


def value(row, key, digits=1):
    return f"{float(row[key]):.{digits}f}" if row and row[key] else ""


def ratio(row, name):
    ratios = row[f"{name}_step_ratios"].split()
    return f"{float(row[f'{name}_step_ratio']):.3f} ({float(ratios[0]):.2f} to {float(ratios[-1]):.2f})" if ratios else ""


def main():
    with open(sys.argv[1], newline="") as file:
        rows = list(csv.DictReader(file))
    print("| text | bytes, MB/s | memory, MiB | BPE, MB/s | memory, MiB | start, s | memory of training, MiB | ms a step, text in memory "
          "| files, ratio | after dropped caches, ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for size in dict.fromkeys(row["bytes"] for row in rows):
        found = {row["tokenizer"]: row for row in rows if row["bytes"] == size}
        own, bpe = found["byte"], found.get("bpe")
        cells = [size_of(own), value(own, "prepare_mb_per_second"), value(own, "prepare_memory_mib", 0), value(bpe, "prepare_mb_per_second"),
                 value(bpe, "prepare_memory_mib", 0), value(own, "tokens_start_seconds", 2), value(own, "tokens_memory_mib", 0),
                 value(own, "text_ms_per_step"), ratio(own, "tokens"), ratio(own, "cold")]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
