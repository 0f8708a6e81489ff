#!/usr/bin/env python3
"""Trains configs over seeds and keeps one CSV row per finished run; runs that have a row are skipped.

  experiments/sweep.py shakespeare_cpu
  experiments/sweep.py shakespeare_cpu --table          only print the table of the rows there are

A row is keyed by the SHA-256 of its resolved config, so a changed config is a new run. Rows go to
experiments/results/SWEEP.csv; the runs themselves to runs/sweep/.
"""
import argparse
import csv
import hashlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIXERS = ("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity")
SWEEPS = {"shakespeare_cpu": [f"shakespeare_{mixer}.yaml" for mixer in MIXERS]}
SEEDS = (1337, 1, 2)
RESULTS = ("steps", "train_loss", "val_loss", "best_val_loss", "parameters", "mixer_parameters", "ms_per_step",
           "tokens_per_second", "peak_memory_bytes")
COLUMNS = ("key", "config", "seed", *RESULTS, "commit", "cpu", "threads")


def metaformer(*arguments):
    return subprocess.run([ROOT / "scripts/run.sh", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def key_of(config, seed):
    dump = metaformer("config", "dump", "--config", config, "--set", f"train.seed={seed}")
    return hashlib.sha256(dump.encode()).hexdigest()[:16]


def read_rows(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_row(path, row):
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def row_of(key, config, seed, run):
    """The row of a finished run, from its own files."""
    summary = json.loads((run / "summary.json").read_text())
    environment = json.loads((run / "environment.json").read_text())
    return {"key": key, "config": config, "seed": seed, **{name: summary[name] for name in RESULTS},
            "commit": environment["commit"][:12], "cpu": environment["device_name"], "threads": environment["threads"]}


def train(config, seed, key):
    run = ROOT / "runs/sweep" / f"{Path(config).stem}-{seed}-{key}"
    metaformer("train", "--config", config, "--set", f"train.seed={seed}", "--out", str(run), "--resume")
    return row_of(key, config, seed, run)


def print_table(rows):
    print("| config | seeds | validation loss, mean ± sd | ms/step, median | parameters | in mixers |")
    print("|---|---|---|---|---|---|")
    for config in dict.fromkeys(row["config"] for row in rows):
        group = [row for row in rows if row["config"] == config]
        losses = [float(row["val_loss"]) for row in group]
        spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        milliseconds = statistics.median(float(row["ms_per_step"]) for row in group)
        print(f"| {config} | {len(group)} | {statistics.mean(losses):.4f}{spread} | {milliseconds:.1f} | "
              f"{int(group[0]['parameters']):,} | {int(group[0]['mixer_parameters']):,} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=sorted(SWEEPS))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--table", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    results = ROOT / "experiments/results" / f"{arguments.sweep}.csv"
    if not arguments.table:
        done = {row["key"] for row in read_rows(results)}
        for seed in arguments.seeds:
            for config in SWEEPS[arguments.sweep]:
                key = key_of(config, seed)
                if key in done:
                    print(f"{config} seed {seed}: has a row", file=sys.stderr)
                else:
                    append_row(results, train(config, seed, key))
    print_table(read_rows(results))


if __name__ == "__main__":
    main()
