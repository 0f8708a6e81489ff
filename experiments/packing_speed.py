#!/usr/bin/env python3
"""Speed of training on IMDb's reviews with padded, sorted and packed rows: interleaved measurements with `metaformer bench step`.
Prints a table of medians, and writes every number into a CSV file.

  experiments/packing_speed.py experiments/results/packing_speed.csv
  experiments/packing_speed.py speed.csv --config imdb_metric.yaml --rounds 1
"""
import argparse
import csv
import json
import statistics
import subprocess
from pathlib import Path

from inspect_runs import ROOT

ROWS = {
    "padded": ["task.bucketing=1"],
    "sorted by length, 50 steps": ["task.bucketing=50"],
    "spfhp, depth 3": ["task.bucketing=1", "data.packing={kind: spfhp, depth: 3}"],
    "spfhp, any depth": ["task.bucketing=1", "data.packing={kind: spfhp, depth: 0}"],
    "nnlshp, depth 3": ["task.bucketing=1", "data.packing={kind: nnlshp, depth: 3}"],
}


def measure(program, config, overrides, steps):
    words = [word for override in overrides for word in ("--set", override)]
    printed = subprocess.run([program, "bench", "step", "--config", config, *words, "--steps", str(steps), "--rounds", "1", "--json"],
                             check=True, capture_output=True, text=True).stdout
    return json.loads(printed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    parser.add_argument("--config", default="imdb_scaled_dot_product.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for every variant")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each variant, interleaved")
    parser.add_argument("--steps", type=int, default=100, help="steps of a measurement")
    arguments = parser.parse_args()
    rows = []
    for number in range(arguments.rounds):
        for name, overrides in ROWS.items():
            found = measure(arguments.program, arguments.config, [*arguments.set, *overrides], arguments.steps)
            rows.append({"rows": name, "round": number, "ms_per_step": round(found["ms_per_step"], 2),
                         "tokens_per_second": round(found["tokens_per_second"])})
            print(*rows[-1].values(), sep=", ", flush=True)
    with open(arguments.results, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    speeds = {name: [row["tokens_per_second"] for row in rows if row["rows"] == name] for name in ROWS}
    padded = speeds["padded"]
    print("\n| rows | tokens/s | speed beside padded rows |\n|---|---|---|")
    for name, values in speeds.items():
        ratios = sorted(value / before for value, before in zip(values, padded))
        print(f"| {name} | {statistics.median(values):,.0f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")


if __name__ == "__main__":
    main()
