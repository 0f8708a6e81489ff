#!/usr/bin/env python3
r"""Prints for each model the number of steps that take as long as a number of steps of a config, and the ratio of its time for a step
to that of the config.

  (. experiments/lib/field_mixers.sh; printf '%s\n' "$field_mixers" shakespeare_lstm.yaml shakespeare_gru.yaml) |
    experiments/equal_time.py shakespeare_scaled_dot_product.yaml 2000 --arguments "--set model.mixer.qk_norm=true"

A line of standard input is a mixer and the ratio of its feed-forward branch, which replace those of the config, or the name of another
config. `metaformer bench step` measures steps with one thread; each model runs directly after the config, and the result is the median
over the rounds. Nothing else should run on the machine.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def step_time(program, config, arguments):
    command = [program, "bench", "step", "--config", config, *arguments, "--steps", "20", "--rounds", "3", "--warmup", "5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["ms_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("steps", type=int)
    parser.add_argument("--arguments", default="", help="of CONFIG, as for `metaformer train`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default=str(ROOT / "build/release/metaformer"))
    options = parser.parse_args()

    measured = {}
    for line in sys.stdin:
        words = line.split()
        if len(words) == 2:
            measured[line.strip()] = (options.config, ["--set", f"model.mixer={words[0]}", "--set", f"model.feed_forward.ratio={words[1]}"])
        elif words:
            measured[line.strip()] = (words[0], [])
    ratios = {name: [] for name in measured}
    for _ in range(options.rounds):
        for name, (config, arguments) in measured.items():
            reference = step_time(options.program, options.config, shlex.split(options.arguments))
            ratios[name].append(step_time(options.program, config, arguments) / reference)
    for name, values in ratios.items():
        ratio = statistics.median(values)
        print(f"{name} {round(options.steps / ratio, -1):.0f}  # {ratio:.2f} ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
