#!/usr/bin/env python3
"""Runs `metaformer inspect` on finished runs and writes the results into a results file for `metaformer compare`: a row for each
run, with means over its layers and heads. Runs with a row in the file are not inspected again.

  experiments/inspect_runs.py experiments/results/interpretation.csv runs/shakespeare_ladder/*-[0-9]*
"""
import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IDENTITY = ["key", "config", "overrides", "seed"]
REST = ["data", "settings"]


def mean(values):
    values = [value for value in values if value is not None]
    return statistics.fmean(values) if values else None


def columns_of(inspection):
    """The numbers of one run. log_gradient_ratio is the logarithm (to the base 10) of the norm of the gradient at the
    embeddings over that after the last block; best_order_correlation is the correlation of the head with the largest absolute value."""
    layers = [layer["heads"] for layer in inspection["layers"]]
    heads = [head for layer in layers for head in layer]
    found = {name: mean(head.get(name) for head in heads)
             for name in ("negative_scores", "negative_eigenvalues", "negative_pairs", "violated_triples", "asymmetry",
                          "mean_attention_distance")}
    found["metric_heads"] = mean(float(head["verdict"] != "no_metric") for head in heads if "verdict" in head)
    correlations = [head["distance_rank_correlation"] for head in heads if head.get("distance_rank_correlation") is not None]
    if correlations:
        found["first_order_correlation"] = correlations[0]
        found["best_order_correlation"] = max(correlations, key=abs)
    validation = inspection.get("validation", {})
    if "gradients" in validation:
        stream = validation["gradients"]["stream"]
        first, last = stream["embedding"], stream["after_feed_forward"][-1]
        found["log_gradient_ratio"] = math.log10(first / last) if first > 0 and last > 0 else None
    if "effective_context" in validation:
        found["effective_context"] = validation["effective_context"]
    return {name: value for name, value in found.items() if value is not None}


def run(program, *arguments):
    finished = subprocess.run([program, *map(str, arguments)], text=True, stdout=subprocess.PIPE)
    if finished.returncode != 0:
        sys.exit(finished.returncode)  # the program has printed the reason
    return finished.stdout


def identity_of(program, folder):
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "row.csv"
        run(program, "compare", "--export", path, "--export-only", folder)
        with open(path, newline="", encoding="utf-8") as file:
            row = next(csv.DictReader(file))
    return {name: row.get(name, "") for name in [*IDENTITY, *REST]}


def inspect(program, folder, batches):
    with tempfile.TemporaryDirectory() as temporary:
        printed = run(program, "inspect", "--run", folder, "--checkpoint", "last", "--batches", batches, "--out", temporary,
                      "--no-pictures", "--json")
    return columns_of(json.loads(printed))


def write(path, rows):
    numbers = sorted({name for row in rows for name in row} - {*IDENTITY, *REST})
    temporary = path.with_suffix(".new")
    with open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*IDENTITY, *numbers, *REST], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a CSV file")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--batches", type=int, default=0, help="the same as for `metaformer inspect`; default: the whole validation split")
    parser.add_argument("--program", type=Path, default=ROOT / "scripts/run.sh", help="a built metaformer")
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    rows = []
    if arguments.results.exists():
        with open(arguments.results, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    known = {row["key"] for row in rows}
    for folder in arguments.runs:
        row = identity_of(program, folder)
        if row["key"] in known:
            continue
        known.add(row["key"])
        print(f"inspecting {folder}", file=sys.stderr, flush=True)
        rows.append({**row, **inspect(program, folder, arguments.batches)})
        write(arguments.results, rows)


if __name__ == "__main__":
    main()
