#!/usr/bin/env python3
"""Trains configs over seeds and keeps one CSV row per finished run; runs that have a row are skipped.

  experiments/sweep.py shakespeare_cpu
  experiments/sweep.py sorter sorter_hard --seeds 1337 1
  experiments/sweep.py all --table                      only print the tables of the rows there are

A row is keyed by a hash of what the resolved config changes from the defaults, so a changed config is a new run. Rows go
to experiments/results/SWEEP.csv; the runs themselves to runs/sweep/.
"""
import argparse
import csv
import fcntl
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIXERS = ("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity")
ATTENTION = MIXERS[:3]


def experiment(config, *overrides):
    return config, overrides


def score_std_experiments(prefix):
    """The attention mixers with equal scores at the start, level by level."""
    return [experiment(f"{prefix}_{mixer}.yaml", f"model.mixer.score_std={std}")
            for std in (0.05, 0.3, 1) for mixer in ATTENTION]


SWEEPS = {
    "shakespeare_cpu": [experiment(f"shakespeare_{mixer}.yaml") for mixer in MIXERS],
    "shakespeare_subword": [experiment(f"shakespeare_subword_{mixer}.yaml") for mixer in ("scaled_dot_product", "metric")],
    "shakespeare_word": [experiment(f"shakespeare_word_{mixer}.yaml") for mixer in ("scaled_dot_product", "metric")],
    "shakespeare_score_std": score_std_experiments("shakespeare"),
    "sorter": [experiment(f"sorter_{mixer}.yaml") for mixer in MIXERS],
    "sorter_score_std": score_std_experiments("sorter"),
    "sorter_hard": [
        *(experiment(f"sorter_hard_{mixer}.yaml") for mixer in ATTENTION),
        experiment("sorter_hard_metric.yaml", "model.mixer.constraint=psd"),
        experiment("sorter_hard_metric.yaml", "model.mixer.constraint=psd", "model.mixer.score=distance"),
        experiment("sorter_hard_metric.yaml", "model.mixer.constraint=diagonal"),
    ],
    "sorter_hard_score_std": score_std_experiments("sorter_hard"),
    "imdb": [experiment(f"imdb_{mixer}.yaml") for mixer in MIXERS],
    "imdb_score_std": score_std_experiments("imdb"),
    "imdb_best": [experiment("imdb_best.yaml")],
}
SEEDS = (1337, 1, 2)
SUMMARY = ("steps", "train_loss", "val_loss", "best_val_loss", "best_step", "parameters", "mixer_parameters",
           "ms_per_step", "tokens_per_second", "peak_memory_bytes")
COLUMNS = ("key", "config", "overrides", "seed", *SUMMARY, "accuracy", "exact_match", "best_exact_match",
           "perfect_since", "commit", "cpu", "threads", "best_val_error", "test_accuracy", "test_f1", "test_auc",
           "test_calibration_error", "train_seconds")
PROGRAM = ROOT / "scripts/run.sh"


def metaformer(*arguments):
    return subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def changes(config, defaults):
    """The entries of a nested config that are not the default's."""
    if not isinstance(config, dict) or not isinstance(defaults, dict):
        return config
    return {name: changes(value, defaults.get(name)) for name, value in config.items() if value != defaults.get(name)}


def settings(overrides, seed):
    return [word for override in (*overrides, f"train.seed={seed}") for word in ("--set", override)]


def key_of(config, overrides, seed, defaults):
    resolved = json.loads(metaformer("config", "dump", "--json", "--config", config, *settings(overrides, seed)))
    text = json.dumps(changes(resolved, defaults), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_rows(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_row(path, row):
    """Rows of an earlier set of columns get empty cells for the new ones. Sweeps at once may share a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        rows = [*read_rows(path), row]
        new = path.with_suffix(".new")
        with new.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        new.replace(path)
    finally:
        os.close(folder)


def evaluations(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines if line["split"] == "validation"}


def perfect_since(by_step):
    """The first evaluated step from which on every evaluation found all lists sorted; "" when the last did not."""
    since = ""
    for step, metrics in by_step.items():
        since = (since or step) if metrics["exact_match"] == 1 else ""
    return since


def row_of(key, config, overrides, seed, run):
    """The row of a finished run, from its own files."""
    summary = json.loads((run / "summary.json").read_text())
    environment = json.loads((run / "environment.json").read_text())
    validation = summary["validation"]
    row = {"key": key, "config": config, "overrides": " ".join(overrides), "seed": seed,
           **{name: summary[name] for name in SUMMARY}, "accuracy": validation["accuracy"],
           "commit": environment["commit"][:12], "cpu": environment["device_name"], "threads": environment["threads"]}
    if summary.get("test"):
        row |= {"best_val_error": summary["best_val_error"], "train_seconds": summary["train_seconds"]}
        row |= {f"test_{name}": summary["test"][name] for name in ("accuracy", "f1", "auc", "calibration_error")}
    if "exact_match" in validation:
        by_step = evaluations(run)
        row |= {"exact_match": validation["exact_match"], "perfect_since": perfect_since(by_step),
                "best_exact_match": by_step[summary["best_step"]]["exact_match"]}
    return row


def train(config, overrides, seed, key):
    run = ROOT / "runs/sweep" / f"{Path(config).stem}-{seed}-{key}"
    metaformer("train", "--config", config, *settings(overrides, seed), "--out", str(run), "--resume")
    return row_of(key, config, overrides, seed, run)


def run_sweep(name, seeds, results):
    defaults = json.loads(metaformer("config", "dump", "--json"))
    done = {row["key"] for row in read_rows(results)}
    for seed in seeds:
        for config, overrides in SWEEPS[name]:
            key = key_of(config, overrides, seed, defaults)
            if key in done:
                print(f"{config} {' '.join(overrides)} seed {seed}: has a row", file=sys.stderr)
            else:
                append_row(results, train(config, overrides, seed, key))


def spread(values, digits):
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def exact_match_cells(group):
    matches = [100 * float(row["exact_match"]) for row in group]
    since = [row["perfect_since"] or "never" for row in group]
    return [spread(matches, 2), f"{min(matches):.2f}", ", ".join(since)]


def by_seed(group, value):
    return {row["seed"]: value(row) for row in group}


def student_probability(angle, freedom):
    """P(|T| < t) for Student's t, where tan(angle) = t / sqrt(freedom): the finite sums of Abramowitz and Stegun, 26.7.3 f."""
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, cosine) if odd else (1, 1)
    if freedom == 1:
        total = 0
    for k in range(2 + odd, freedom, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def student_quantile(freedom, probability=0.95):
    """The t that Student's t with so many degrees of freedom stays within on both sides with that probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_probability(middle, freedom) < probability else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def test_accuracy(row):
    return 100 * float(row["test_accuracy"])


def validation_loss(row):
    return float(row["val_loss"])


def difference_cell(group, reference, value, digits):
    """Mean over seeds of the difference to the reference, with a 95% interval (paired by seed, Student's t)."""
    ours, theirs = by_seed(group, value), by_seed(reference, value)
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if ours == theirs or len(differences) < 2:
        return ""
    mean = statistics.mean(differences)
    width = student_quantile(len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    return f"{mean:+.{digits}f} ({mean - width:+.{digits}f} to {mean + width:+.{digits}f})"


def reference_of(rows, overrides):
    """The rows of the first config: those with the same overrides or, where there are none, those without any."""
    first = [row for row in rows if row["config"] == rows[0]["config"]]
    return [row for row in first if row["overrides"] == overrides] or [row for row in first if not row["overrides"]]


def classifier_cells(group, reference):
    validation = [100 - 100 * float(row["best_val_error"]) for row in group]
    return [spread([test_accuracy(row) for row in group], 2), difference_cell(group, reference, test_accuracy, 2),
            spread(validation, 2), spread([float(row["test_auc"]) for row in group], 4)]


def in_order(name, rows):
    """Rows by their place in the sweep, whenever they were trained; those of earlier sweeps last."""
    places = {(config, " ".join(overrides)): place for place, (config, overrides) in enumerate(SWEEPS[name])}
    return sorted(rows, key=lambda row: places.get((row["config"], row["overrides"]), len(places)))


def print_table(name, rows):
    sorts, classifies = any(row["exact_match"] for row in rows), any(row.get("test_accuracy") for row in rows)
    metric = "validation loss, mean ± sd | against the first, 95%"
    if sorts:
        metric = "exact match %, mean ± sd | worst | perfect since step"
    elif classifies:
        metric = "test accuracy %, mean ± sd | against the first, 95% | validation score % | test AUC"
    columns = f"config | seeds | {metric} | parameters | in mixers"
    print(f"{name}\n\n| {columns} |")
    print("|---" * (columns.count("|") + 1) + "|")
    for config, overrides in dict.fromkeys((row["config"], row["overrides"]) for row in rows):
        group = [row for row in rows if (row["config"], row["overrides"]) == (config, overrides)]
        if sorts:
            cells = exact_match_cells(group)
        elif classifies:
            cells = classifier_cells(group, reference_of(rows, overrides))
        else:
            cells = [spread([validation_loss(row) for row in group], 4),
                     difference_cell(group, reference_of(rows, overrides), validation_loss, 4)]
        print(f"| {' '.join((config, overrides)).strip()} | {len(group)} | {' | '.join(cells)} | {int(group[0]['parameters']):,} | "
              f"{int(group[0]['mixer_parameters']):,} |")
    print()


def main():
    global PROGRAM
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", choices=[*SWEEPS, "all"])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="a built metaformer; default scripts/run.sh")
    arguments = parser.parse_args()
    PROGRAM = arguments.program
    for name in SWEEPS if "all" in arguments.sweeps else arguments.sweeps:
        results = ROOT / "experiments/results" / f"{name}.csv"
        if not arguments.table:
            run_sweep(name, arguments.seeds, results)
        print_table(name, in_order(name, read_rows(results)))


if __name__ == "__main__":
    main()
