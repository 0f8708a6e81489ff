#!/usr/bin/env python3
"""Stops runs at random moments, or at every operation on a file, resumes them, and compares the result with an
undisturbed run: weights, optimiser, metrics.jsonl and summary.json.

  scripts/fault_campaign.py                      200 runs, stopped at random (about 20 minutes)
  scripts/fault_campaign.py --count 20 --seed 7 --program build/release/metaformer
  scripts/fault_campaign.py --processes --count 100    runs of 2 to 4 processes; one process, chosen at random, is stopped
  scripts/fault_campaign.py --every-operation    one run of each task for every operation on a file (about 20 minutes)
  scripts/fault_campaign.py --every-operation sort --signal TERM --stride 5

At random: a run is stopped by SIGKILL or SIGTERM at a random time, by SIGTERM during an evaluation, by the end of the
program (METAFORMER_FAULT) before a write, a sync, a rename, a link or the naming of a checkpoint, or by a full disk at a
random write. It is resumed until it ends normally. Configs with all tasks, mixers, precisions, dropout and accumulation
alternate with configs of earlier errors: rollbacks, random estimates, recalibration, 150 classes, baselines, byte-pair
encoding.

At every operation: a preloaded library, which this script compiles, counts the operations of an undisturbed run, and stops
a run at each of them (a write after its first half). The remaining checkpoints must be intact: their links resolve, and
their files have the digests of meta.json. Then the run is resumed and compared. Exit code 1 if a run ends differently or
cannot be resumed.
"""
import argparse
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POINTS = ("write", "sync", "rename", "link", "checkpoint", "evaluate")
MIXERS = ("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity")
CLASSIFICATION = ["task=classification", "data.path=table.csv", "model.context=8"]
TASKS = {
    "language_model": ["data.path=text.txt", "model.context=16"],
    "sort": ["task=sort", "task.length=4", "model.context=7"],
    "classification": CLASSIFICATION,
}
# Rates that rise until gradients overflow: these runs roll back five and seven times, over several checkpoints.
RISING = [*TASKS["language_model"], "train.learning_rate=100", "train.clip=0", "train.optimizer.weight_decay=0",
          "train.schedule={kind: constant, warmup_steps: 40}", "train.divergence.action={kind: rollback, limit: 12}",
          "model.dropout=0"]
SPECIAL = {
    "rollback": [*RISING, "model.mixer.kind=metric", "train.divergence.action.factor=0.3"],
    "rollback of scaled dot products": [*RISING, "model.mixer.kind=scaled_dot_product",
                                        "train.divergence.action.factor=0.5"],
    "random estimates": [*TASKS["language_model"], "train.evaluation=random", "train.evaluation.batches=3"],
    "early end": [*TASKS["language_model"], "train.evaluation=random", "train.evaluation.batches=3", "train.patience=2",
                  "train.learning_rate=0.5", "train.schedule=constant", "train.eval_interval=4"],
    "recalibration": [*CLASSIFICATION, "task.head.recalibrate=true", "task.baselines=false"],
    "150 classes": [*CLASSIFICATION, "data.path=classes.csv", "data.test_path=classes.csv", "task.baselines=false"],
    "baselines": [*CLASSIFICATION, "data.test_path=table.csv"],
    "averaged weights of Muon in fp16": [*TASKS["language_model"], "train.optimizer=muon", "train.precision=fp16",
                                         "train.weight_average.decay=0.9"],
    "byte-pair encoding": [*TASKS["language_model"], "data.tokenizer.kind=bpe", "data.tokenizer.vocabulary=300",
                           "data.tokenizer.whitespace=kept"],
}
COMMON = ["model.layers=1", "model.heads=2", "model.width=16", "train.batch_size=4", "train.steps=40",
          "train.eval_interval=10", "train.checkpoint_interval=5", "train.log_interval=3",
          "train.schedule.warmup_steps=5", "model.dropout=0.1"]
SHORT = ["train.steps=8", "train.eval_interval=4", "train.checkpoint_interval=3"]
STOPPED = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
STOPPED_TOGETHER = (*STOPPED, 128 + signal.SIGKILL, 6)  # 6: another process was lost


def write_data(folder):
    (folder / "text.txt").write_text("".join(f"the {i % 7} foxes jump over {i % 5} dogs\n" for i in range(60)))
    rows = (f"w{i % 11} w{i % 13} {'good' if i % 2 else 'bad'},{'yes' if i % 2 else 'no'}\n" for i in range(200))
    (folder / "table.csv").write_text("text,label\n" + "".join(rows))
    rows = (f"w{i % 150} w{i % 13},label {i % 150}\n" for i in range(900))
    (folder / "classes.csv").write_text("text,label\n" + "".join(rows))
    (folder / "empty.yaml").write_text("{}\n")


def without_times(value):
    """Without the values that differ from run to run: times, memory, paths."""
    if not isinstance(value, dict):
        return value
    varying = ("second", "time", "memory", "ms_per", "path")
    return {key: without_times(inner) for key, inner in value.items()
            if key != "run" and not any(word in key for word in varying)}


def first_difference(expected, found):
    for name, value in expected.items():
        if found[name] != value:
            return name
    return None


def children_of(process):
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []  # it has ended


class Campaign:
    def __init__(self, program, folder, rng):
        self.program, self.folder, self.rng = program, folder, rng
        self.processes = 1
        self.stops, self.full_disks, self.starts = 0, 0, 0
        self.undisturbed_seconds = 0.5

    def start(self, out, overrides, fault=None, extra=None):
        """Starts one process on the run; True if it ends normally. `fault`: kill, term, or a point of METAFORMER_FAULT."""
        command = [self.program, "train", "--config", "empty.yaml", "--out", out, "--resume", "--quiet", "--device", "cpu"]
        command += [word for override in overrides for word in ("--set", override)]
        if self.processes > 1:
            command += ["--processes", str(self.processes), "--process-timeout", "30"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.folder / "cache"), **(extra or {})}
        wait = None
        if fault in ("kill", "term"):
            wait = self.rng.uniform(0.2, 1) * self.undisturbed_seconds
        elif fault:
            environment["METAFORMER_FAULT"] = f"{fault}:{self.rng.randint(1, 30)}"
        self.starts += 1
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        try:
            errors = process.communicate(timeout=wait)[1]
        except subprocess.TimeoutExpired:
            self.stop(process, signal.SIGTERM if fault == "term" else signal.SIGKILL)
            errors = process.communicate()[1]
        if process.returncode in (STOPPED if self.processes == 1 else STOPPED_TOGETHER):
            self.stops += 1
            return False
        if fault == "full" and process.returncode == 1 and "No space left on device" in errors:
            self.full_disks += 1
            return False
        if process.returncode != 0:
            sys.exit(f"{out}: exit code {process.returncode}: {errors}")
        return True

    def stop(self, process, number):
        """Signals a random one of the run's processes, or the process that has started them."""
        targets = [process.pid, *children_of(process.pid)] if self.processes > 1 else [process.pid]
        try:
            os.kill(self.rng.choice(targets), number)
        except ProcessLookupError:
            pass  # it has just ended

    def story(self, out):
        """The result of a run, which must not depend on its stops."""
        run = self.folder / out
        story = {f"{link}/{name}": (run / "checkpoints" / link / name).read_bytes()
                 for link in ("last", "best") for name in ("model.safetensors", "state.safetensors")}
        lines = (run / "metrics.jsonl").read_text().splitlines()
        story["metrics.jsonl"] = [without_times(json.loads(line)) for line in lines]
        story["summary.json"] = without_times(json.loads((run / "summary.json").read_text()))
        story["left behind"] = [path.name for path in run.rglob("*.tmp")]
        return story

    def undisturbed(self, overrides):
        begin = time.monotonic()
        self.start("whole", overrides)
        self.undisturbed_seconds = time.monotonic() - begin
        story = self.story("whole")
        shutil.rmtree(self.folder / "whole")
        return story

    def disturb(self, number, overrides, expected):
        """Trains with one to five stops; returns the name of the first difference, or None."""
        out, stops = f"run-{number}", self.stops
        while self.stops == stops:
            shutil.rmtree(self.folder / out, ignore_errors=True)
            faults = ["kill", "term", "full", *POINTS]
            self.rng.shuffle(faults)
            if not any(self.start(out, overrides, fault) for fault in faults[:5]):
                self.start(out, overrides)
        difference = first_difference(expected, self.story(out))
        shutil.rmtree(self.folder / out)
        return difference

    def at_random(self, count, together):
        variants = [(f"{task}, {mixer}, {precision}, accumulate {accumulate}",
                     [*TASKS[task], *COMMON, f"model.mixer.kind={mixer}", f"train.precision={precision}",
                      f"train.accumulate={accumulate}"])
                    for task, mixer, precision, accumulate in itertools.product(TASKS, MIXERS, ("fp32", "bf16"), (1, 2))]
        self.rng.shuffle(variants)
        special = [(name, [*COMMON, *overrides]) for name, overrides in SPECIAL.items()]
        failures, known = [], {}
        for number in range(count):
            turn = special if number % 2 == 0 else variants
            name, overrides = turn[number // 2 % len(turn)]
            if together:
                self.processes = self.rng.choice((2, 3, 4))
                name, overrides = f"{name}, {self.processes} processes", [*overrides, "train.batch_size=12"]
            if name not in known:
                known[name] = self.undisturbed(overrides)
            if difference := self.disturb(number, overrides, known[name]):
                failures.append(name)
                print(f"{name}: ended with another {difference}", file=sys.stderr)
        print(f"{count} runs stopped {self.stops} times, {self.full_disks} full disks, in {self.starts} starts: "
              f"{len(failures)} ended differently")
        return failures

    def at_every_operation(self, task, stop_signal, stride, library, no_exchange):
        overrides = [*TASKS[task], *COMMON, *SHORT]
        if task == "classification":
            overrides += ["data.test_path=table.csv", "task.head.recalibrate=true"]
        preload = {"LD_PRELOAD": str(library), "XDG_CACHE_HOME": str(self.folder / "every-cache")}
        if no_exchange:
            preload["STOP_NO_EXCHANGE"] = "1"
        self.start("whole", overrides, extra={**preload, "STOP_COUNT": str(self.folder / "count")})
        operations = int((self.folder / "count").read_text())
        expected = self.story("whole")
        failures = []
        for operation in range(1, operations + 1, stride):
            out = f"every-{operation}"
            for leftover in (out, "every-cache"):
                shutil.rmtree(self.folder / leftover, ignore_errors=True)
            stop = {"STOP_AT": str(operation), "STOP_SIGNAL": str(int(stop_signal))}
            if not self.start(out, overrides, extra={**preload, **stop}):
                problem = problem_of(self.folder / out, no_exchange)
                # A second stop, at the same operation of the resumed process.
                if problem is None and not self.start(out, overrides, extra={**preload, **stop}):
                    problem = problem_of(self.folder / out, no_exchange)
                if problem is None:
                    self.start(out, overrides)
            else:
                problem = None
            problem = problem or first_difference(expected, self.story(out))
            if problem:
                failures.append((task, operation))
                print(f"{task}, {stop_signal.name} at operation {operation}: {problem}", file=sys.stderr)
            shutil.rmtree(self.folder / out)
        shutil.rmtree(self.folder / "whole")
        print(f"{task}: {len(range(1, operations + 1, stride))} of {operations} operations with {stop_signal.name}"
              f"{', names not swapped' if no_exchange else ''}: {len(failures)} ended differently")
        return failures


def problem_of(run, may_lack_a_name):
    """The problem with the checkpoints of a stopped run, or None."""
    checkpoints = run / "checkpoints"
    for link in ("last", "best"):
        if not may_lack_a_name and (checkpoints / link).is_symlink() and not (checkpoints / link / "meta.json").is_file():
            return f"the link {link} leads nowhere"
    for folder in checkpoints.glob("step-*"):
        try:
            files = json.loads((folder / "meta.json").read_text())["files"]
            for name, digest in files.items():
                if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                    return f"{folder.name}/{name} does not match its digest"
        except (OSError, ValueError) as error:
            return f"{folder.name} is damaged: {error}"
    return None


def build_library(folder):
    library = folder / "stop_at_operation.so"
    source = ROOT / "scripts/lib/stop_at_operation.c"
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return library


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help="runs to stop at random; default 200, with --every-operation 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/metaformer")
    parser.add_argument("--processes", action="store_true", help="runs of several processes, stopped at random")
    parser.add_argument("--every-operation", nargs="*", choices=TASKS, metavar="TASK", help="these tasks, or all")
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL", help="the signal at every operation")
    parser.add_argument("--stride", type=int, default=1, help="stop only at every N-th operation")
    parser.add_argument("--no-exchange", action="store_true", help="on a file system that cannot swap two names")
    arguments = parser.parse_args()
    every = arguments.every_operation
    tasks = [] if every is None else every or list(TASKS)
    count = arguments.count if arguments.count is not None else (0 if tasks else 200)
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(arguments.program.resolve(), Path(folder), random.Random(arguments.seed))
        write_data(campaign.folder)
        if count:
            failures += campaign.at_random(count, arguments.processes)
        library = build_library(campaign.folder) if tasks else None
        for task in tasks:
            failures += campaign.at_every_operation(task, signal.Signals[f"SIG{arguments.signal}"], arguments.stride,
                                                    library, arguments.no_exchange)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
