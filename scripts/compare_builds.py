#!/usr/bin/env python3
"""Compares the training step time of two builds of metaformer. The builds run interleaved, so that noise affects both equally.

  scripts/compare_builds.py OLD NEW [--config FILE] [--set KEY=VALUE ...] [--pairs 15] [--steps 30] [--limit 1.02]

OLD and NEW are executables, for example build/release/metaformer of two checkouts. Prints the median of the pairs' ratios
NEW / OLD and its 90% interval by resampling. Exit code 1 if the interval is above --limit, that is, if NEW is slower.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys


def milliseconds(program, a):
    command = [program, "bench", "step", "--config", a.config, "--rounds", "1", "--steps", str(a.steps), "--json"]
    for override in a.set:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)["ms_per_step"]


def interval(ratios):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[100], medians[1900]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--config", default="shakespeare_metric.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--limit", type=float, default=1.02)
    a = parser.parse_args()
    ratios = []
    for pair in range(a.pairs):
        # The order alternates, so that a machine that warms up or cools down favours neither.
        order = [a.old, a.new] if pair % 2 == 0 else [a.new, a.old]
        times = {program: milliseconds(program, a) for program in order}
        ratios.append(times[a.new] / times[a.old])
        print(f"pair {pair + 1}: {times[a.old]:.2f} ms, {times[a.new]:.2f} ms, ratio {ratios[-1]:.3f}", file=sys.stderr)
    low, high = interval(ratios)
    print(f"new / old: {statistics.median(ratios):.3f} (90% interval {low:.3f} to {high:.3f})")
    sys.exit(low > a.limit)


if __name__ == "__main__":
    main()
