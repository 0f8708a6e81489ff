#!/usr/bin/env python3
"""Compares the times in which nanoGPT's CPU recipe and a config of metaformer train to the same loss on this machine, or prints the
times in which the runs of a sweep reached a loss.

  experiments/time_to_loss.py NANOGPT [--config shakespeare_fast.yaml] [--seeds 1337 1 2] [--program build/release/metaformer]
  experiments/time_to_loss.py --runs runs/shakespeare_gpu_recipes --loss 1.4697

NANOGPT is a checkout of https://github.com/karpathy/nanoGPT whose data/shakespeare_char/prepare.py has run. For every seed
its train.py runs with the CPU recipe of its README, then `metaformer train`. Times are those of whole processes: imports, data,
training, evaluations, checkpoints. Losses are those of the last weights on the whole validation split, in windows of the
training context. Prints a line per seed, then the ratio of the median times.

With --runs the times are those of the first evaluation with at most this loss: of training alone, and from the start of the program,
with data, evaluations and checkpoints. Runs that differ only in the seed are a row, with their medians; the sweep must have trained
one run at a time.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ("--device=cpu --compile=False --eval_iters=20 --log_interval=1 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4 "
          "--n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0 --always_save_checkpoint=True").split()

# train.py sets its seed in its code.
TRAIN = """
import torch
usual = torch.manual_seed
torch.manual_seed = lambda seed: usual({seed})
exec(compile(open("train.py").read(), "train.py", "exec"))
"""

EVALUATE = """
import sys
import numpy, torch
from model import GPT, GPTConfig
checkpoint = torch.load(sys.argv[1], weights_only=False)
model = GPT(GPTConfig(**checkpoint["model_args"]))
model.load_state_dict(checkpoint["model"])
model.eval()
tokens = torch.from_numpy(numpy.fromfile("data/shakespeare_char/val.bin", dtype=numpy.uint16).astype(numpy.int64))
context, total = model.config.block_size, 0.0
with torch.no_grad():
    for start in range(0, len(tokens) - 1, context):
        y = tokens[start + 1:start + 1 + context][None]
        x = tokens[start:start + y.shape[1]][None]
        total += model(x, y)[1].item() * y.shape[1]
print(total / (len(tokens) - 1))
"""


def timed(command, **options):
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return time.monotonic() - start, done.stdout


def nanogpt(folder, seed, python):
    with tempfile.TemporaryDirectory() as out:
        seconds, _ = timed([python, "-c", TRAIN.format(seed=seed), "config/train_shakespeare_char.py", *RECIPE, f"--out_dir={out}"],
                           cwd=folder)
        _, loss = timed([python, "-c", EVALUATE, f"{out}/ckpt.pt"], cwd=folder)
    return seconds, float(loss.split()[-1])


def ours(program, config, seed):
    with tempfile.TemporaryDirectory() as out:
        seconds, _ = timed([program, "train", "--config", config, "--out", f"{out}/run", "--set", f"train.seed={seed}"])
        summary = json.loads(Path(out, "run/summary.json").read_text())
    return seconds, summary["val_loss"]


RUN = re.compile(r"(.+)-(?:default|\d+)-[0-9a-f]{8}")  # a folder of a sweep: config and settings, seed, digest


def reached(run, loss):
    """Step, seconds of training, and seconds from the start of the program, of the first evaluation with at most this loss."""
    training = None
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        if line["split"] == "train":
            training = line
        if line["split"] == "validation" and line["loss"] <= loss:
            startup = json.loads((run / "summary.json").read_text())["startup_seconds"]
            return line["step"], training["seconds"], startup + training["wall_seconds"]
    return None


def print_runs(folder, loss):
    groups = {}
    for summary in sorted(folder.glob("*/summary.json")):
        if found := RUN.fullmatch(summary.parent.name):
            groups.setdefault(found[1], []).append(reached(summary.parent, loss))
    rows = []
    for name, runs in groups.items():
        times = [run for run in runs if run]
        steps, training, program = (statistics.median(column) for column in zip(*times)) if times else (math.inf,) * 3
        rows.append((len(times) < len(runs), program, f"| {name} | {len(times)} of {len(runs)} | "
                     + (f"{steps:.0f} | {training:.1f} | {program:.1f} |" if times else "- | - | - |")))
    print(f"| config | reached {loss} | step | training, s | from the start of the program, s |\n|---|---|---|---|---|")
    print("\n".join(row for _, _, row in sorted(rows)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanogpt", type=Path, nargs="?")
    parser.add_argument("--runs", type=Path, help="the folder of a sweep's runs, in place of training")
    parser.add_argument("--loss", type=float, help="with --runs: the validation loss to reach")
    parser.add_argument("--config", default="shakespeare_fast.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1337, 1, 2])
    parser.add_argument("--program", default=str(ROOT / "build/release/metaformer"), type=os.path.abspath)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch and NumPy")
    arguments = parser.parse_args()
    if (arguments.runs is None) != (arguments.loss is None) or (arguments.runs is None) == (arguments.nanogpt is None):
        parser.error("expected NANOGPT, or --runs with --loss")
    if arguments.runs is not None:
        print_runs(arguments.runs, arguments.loss)
        return
    times, losses = {"nanoGPT": [], "metaformer": []}, {"nanoGPT": [], "metaformer": []}
    for seed in arguments.seeds:
        for name, run in (("nanoGPT", lambda: nanogpt(arguments.nanogpt, seed, arguments.python)),
                          ("metaformer", lambda: ours(arguments.program, arguments.config, seed))):
            seconds, loss = run()
            times[name].append(seconds)
            losses[name].append(loss)
            print(f"seed {seed}: {name:10}  {seconds:6.1f} s  validation loss {loss:.4f}", flush=True)
    ratio = statistics.median(times["nanoGPT"]) / statistics.median(times["metaformer"])
    all_reach = all(own <= other for own, other in zip(losses["metaformer"], losses["nanoGPT"]))
    print(f"median times: nanoGPT / metaformer = {ratio:.2f}; "
          f"{'every seed reaches' if all_reach else 'NOT every seed reaches'} nanoGPT's loss of that seed")


if __name__ == "__main__":
    main()
