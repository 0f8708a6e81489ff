#!/usr/bin/env python3
"""Kills trainings at random moments and at every step of writing a file, resumes each, and compares its final weights with
those of an undisturbed run, byte by byte.

  scripts/fault_campaign.py                    200 trainings (about 15 minutes)
  scripts/fault_campaign.py --count 20 --seed 7 --program build/release/metaformer

Every run is stopped again and again until it ends by itself: by SIGKILL at a random time, by death inside the program
(METAFORMER_FAULT) before a write, a sync, a rename, a link or the naming of a checkpoint, or by a full disk at a random write.
Tasks, mixers, precisions, dropout and accumulation take turns. Exit code 1 when a run ends with other bytes or cannot go on.
"""
import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POINTS = ("write", "sync", "rename", "link", "checkpoint")
MIXERS = ("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity")
TASKS = {
    "language_model": ["data.path=text.txt", "model.context=16"],
    "sort": ["task=sort", "data.sort.length=4", "model.context=7"],
    "classification": ["task=classification", "data.path=table.csv", "model.context=8"],
}
COMMON = ["model.layers=1", "model.heads=2", "model.width=16", "train.batch_size=4", "train.steps=40",
          "train.eval_interval=10", "train.checkpoint_interval=5", "train.log_interval=3", "train.warmup_steps=5",
          "model.dropout=0.1"]


def write_data(folder):
    (folder / "text.txt").write_text("".join(f"the {i % 7} foxes jump over {i % 5} dogs\n" for i in range(60)))
    rows = (f"w{i % 11} w{i % 13} {'good' if i % 2 else 'bad'},{'yes' if i % 2 else 'no'}\n" for i in range(200))
    (folder / "table.csv").write_text("text,label\n" + "".join(rows))
    (folder / "empty.yaml").write_text("{}\n")


class Campaign:
    def __init__(self, program, folder, rng):
        self.program, self.folder, self.rng = program, folder, rng
        self.kills = self.full_disks = self.starts = 0

    def start(self, out, overrides, fault=None):
        """One process on the run; True when it ended by itself."""
        command = [self.program, "train", "--config", "empty.yaml", "--out", out, "--resume", "--quiet", "--device", "cpu"]
        command += [word for override in overrides for word in ("--set", override)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.folder / "cache")}
        wait = None
        if fault == "time":
            wait = self.rng.uniform(0.1, 0.6)
        elif fault:
            environment["METAFORMER_FAULT"] = f"{fault}:{self.rng.randint(1, 30)}"
        self.starts += 1
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        try:
            errors = process.communicate(timeout=wait)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            errors = process.communicate()[1]
        if process.returncode == -9:
            self.kills += 1
            return False
        if fault == "full" and process.returncode == 1 and "No space left on device" in errors:
            self.full_disks += 1
            return False
        if process.returncode != 0:
            sys.exit(f"{out}: exit code {process.returncode}: {errors}")
        return True

    def final_bytes(self, out):
        last = self.folder / out / "checkpoints/last"
        return tuple((last / name).read_bytes() for name in ("model.safetensors", "state.safetensors"))

    def disturb(self, number, overrides, expected):
        """Trains with up to five stops, and at least one kill."""
        out, kills = f"run-{number}", self.kills
        while self.kills == kills:
            shutil.rmtree(self.folder / out, ignore_errors=True)
            faults = ["time", "full", *POINTS]
            self.rng.shuffle(faults)
            if not any(self.start(out, overrides, fault) for fault in faults[:5]):
                self.start(out, overrides)
        equal = self.final_bytes(out) == expected
        shutil.rmtree(self.folder / out)
        return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="trainings to disturb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/metaformer")
    arguments = parser.parse_args()
    variants = list(itertools.product(TASKS, MIXERS, ("fp32", "bf16"), (1, 2)))
    random.Random(arguments.seed).shuffle(variants)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(arguments.program.resolve(), Path(folder), random.Random(arguments.seed))
        write_data(campaign.folder)
        failures, undisturbed = [], {}
        for number in range(arguments.count):
            variant = task, mixer, precision, accumulate = variants[number % len(variants)]
            overrides = [*TASKS[task], *COMMON, f"model.mixer.kind={mixer}", f"train.precision={precision}",
                         f"train.accumulate={accumulate}"]
            if variant not in undisturbed:
                campaign.start("whole", overrides)
                undisturbed[variant] = campaign.final_bytes("whole")
                shutil.rmtree(campaign.folder / "whole")
            if not campaign.disturb(number, overrides, undisturbed[variant]):
                failures.append(variant)
                print(f"other bytes at the end: {variant}", file=sys.stderr)
    print(f"{arguments.count} trainings killed {campaign.kills} times, {campaign.full_disks} full disks, in "
          f"{campaign.starts} starts: "
          f"{len(failures)} ended with other bytes")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
