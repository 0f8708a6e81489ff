#!/usr/bin/env python3
"""A sweep that is killed anywhere and started again, that runs twice at once, or that runs as an array of three tasks, writes the
same results as an undisturbed one; failed runs are listed and do not stop others; with mistakes in a script nothing is trained.

  sweep_scripts.py METAFORMER ROOT
"""
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import in_folder, run_cases

METAFORMER, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
RUNS = 7  # runs of the script below, without the one that fails
TIMES = {"ms_per_step", "tokens_per_second", "train_seconds", "wall_seconds", "peak_memory_bytes"}
CONFIG = """
data: {path: text.txt}
model: {layers: 1, heads: 2, width: 16, context: 16}
train: {batch_size: 4, eval_interval: 20, checkpoint_interval: 20, schedule: {warmup_steps: 0}}
"""
SCRIPT = """#!/usr/bin/env bash
source "%s/experiments/lib/sweep.sh"
cd "$(dirname -- "$0")"
for seed in 2 1; do
  for mixer in metric quadratic identity; do
    run tiny.yaml --set "model.mixer=$mixer" --set "train.steps=${STEPS:-60}" --set "train.seed=$seed"
  done
done
run tiny.yaml --set model.positions=none --set "train.steps=${STEPS:-60}" --context 32
%s
finish
"""
FAILING = 'run tiny.yaml --set data.path=missing.txt'


def write_files(folder, script):
    """A text, a config, and a script that can be executed."""
    letters = random.Random(0)
    (folder / "text.txt").write_text("".join(letters.choice("abcd efgh\n") for _ in range(4000)))
    (folder / "tiny.yaml").write_text(CONFIG)
    (folder / "tiny.sh").write_text(script)
    (folder / "tiny.sh").chmod(0o755)


def make_folder(parent, name, extra=""):
    folder = parent / name
    folder.mkdir()
    write_files(folder, SCRIPT % (ROOT, extra))
    return folder


def start(folder, **environment):
    """Starts the sweep of a folder, from this folder."""
    return subprocess.Popen([folder / "tiny.sh"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True,
                            env=os.environ | {"PROGRAM": str(METAFORMER), "RUNS": str(folder / "runs"), "POLL": "0.5",
                                              "RESULTS": str(folder / "results.csv"), "OMP_NUM_THREADS": "1"} | environment)


def finish(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, (process.returncode, out, err)
    return out, err


def rows(folder, results="results.csv"):
    """The rows of results without times, and without columns that depend on the folder of the text."""
    with (folder / results).open(newline="") as file:
        found = list(csv.DictReader(file))
    return [{name: text for name, text in row.items() if name not in TIMES | {"key", "settings"}} for row in found]


def processes_of(folder):
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and is_of(pid, folder)]


def is_of(pid, folder):
    try:
        return str(folder / "runs").encode() in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


def check_undisturbed(parent):
    folder = make_folder(parent, "undisturbed")
    out, err = finish(start(folder, JOBS="2"))
    expected = rows(folder)
    assert len(expected) == RUNS and "7 runs in 4 groups" in out, (expected, out)
    assert [row["seed"] for row in expected[:6]] == ["2", "2", "2", "1", "1", "1"]
    assert [bool(row["val_loss_32"]) for row in expected] == [False] * 6 + [True]
    before = (folder / "results.csv").read_bytes()
    _, err = finish(start(folder))
    assert "0 to train" in err and (folder / "results.csv").read_bytes() == before
    shutil.rmtree(folder / "runs")  # a row is enough
    _, err = finish(start(folder))
    assert "0 to train" in err and (folder / "results.csv").read_bytes() == before
    _, err = finish(start(folder, STEPS="20"))  # another config is another run
    assert "7 to train" in err and len(rows(folder)) == 2 * RUNS
    return expected


def check_killed(parent, expected):
    folder, moments = make_folder(parent, "killed"), random.Random(1)
    for attempt in range(6):
        process = start(folder, JOBS="2")
        time.sleep(moments.uniform(0.5, 5))
        if attempt % 2:
            os.killpg(process.pid, signal.SIGKILL)  # kills the script; the runs that it started may continue
        else:
            for pid in [*processes_of(folder), process.pid]:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        process.communicate()
    finish(start(folder))
    assert rows(folder) == expected, rows(folder)


def check_interrupted(parent, expected):
    folder = make_folder(parent, "interrupted")
    process = start(folder, JOBS="2", STEPS="100000")
    while not list(folder.glob("runs/*/checkpoints/step-*")):
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = finish(process, 130)
    assert "start it again" in err and not processes_of(folder), err
    assert not (folder / "results.csv").exists()


def check_at_once(parent, expected):
    folder = make_folder(parent, "at_once")
    processes = [start(folder, JOBS=jobs) for jobs in "12"]
    for process in processes:
        finish(process)
    assert rows(folder) == expected
    for run in folder.glob("runs/tiny*"):  # each was trained by one process, once
        assert (run / "environment.json").read_text().count('"started"') == 1, run


def check_array(parent, expected):
    folder = make_folder(parent, "array")
    array = {"SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1"}
    processes = [start(folder, **array, SLURM_ARRAY_TASK_ID=task) for task in "123"]
    trained = [finish(process)[1].count(" is done") for process in processes]
    assert sorted(trained) == [2, 2, 3] and rows(folder) == expected, trained


def check_failures(parent, expected):
    folder = make_folder(parent, "failing", FAILING)
    _, err = finish(start(folder), 1)
    assert "1 failed:" in err and "missing.txt" in err.splitlines()[-1], err
    assert "tiny: 7 of 8 runs done, 1 failed\n" in err, err
    assert rows(folder) == expected


def check_mistakes(parent, expected):
    folder = make_folder(parent, "draw", "run tiny.yaml $(draw nowhere.yaml 0)")
    _, err = finish(start(folder), 2)
    assert "run tiny.yaml: its draw failed" in err and not (folder / "runs").exists(), err
    folder = make_folder(parent, "gap")
    gap = {"SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_ID": "3"}
    _, err = finish(start(folder, **gap), 2)
    assert "use an array without gaps" in err and not (folder / "runs").exists(), err
    _, err = finish(start(folder, PROGRAM="/nowhere"), 2)
    assert "PROGRAM=/nowhere: no such program" in err, err


def check_context_added_later(parent, expected):
    folder = make_folder(parent, "context")
    finish(start(folder, STEPS="20"))
    script = folder / "tiny.sh"
    script.write_text(script.read_text().replace("--context 32", "--context 32 --context 48"))
    _, err = finish(start(folder, STEPS="20"))
    assert "1 to train" in err and rows(folder)[-1]["val_loss_48"], err


def check_long_names(parent, expected):
    """Names of runs come from their overrides, which may be too long for a file name."""
    folder = make_folder(parent, "long", f"run tiny.yaml --set data.path={'./' * 150}text.txt --set train.steps=20")
    finish(start(folder, STEPS="20"))
    assert len(rows(folder)) == RUNS + 1, rows(folder)


def check_best_draw(parent, expected):
    """The best draw among runs with or without a setting, also if it is a list, as words that a shell can split."""
    slow = "train.rate_factors=[mixer.form=0.15, mixer.projection=0.15]"
    (parent / "draws.csv").write_text("config,overrides,best_val_loss\n"
                                      f'a.yaml,"train.learning_rate=1e-3 {slow}",1.5\n'
                                      "a.yaml,train.learning_rate=2e-3,1.4\n"
                                      f'a.yaml,"train.learning_rate=3e-3 {slow}",1.3\n'
                                      "b.yaml,train.learning_rate=4e-3,1.2\n"
                                      "c.yaml,model.mixer={kind: metric},1.1\n")

    def draw(*arguments):
        return subprocess.run([ROOT / "experiments/lib/best_draw.py", parent / "draws.csv", *arguments], text=True, capture_output=True)

    setting = slow.replace(", ", ",")
    assert draw("a.yaml", "best_val_loss", "--with", setting).stdout.split() == ["--set", "train.learning_rate=3e-3", "--set", setting]
    assert draw("a.yaml", "best_val_loss", "--without", setting).stdout.split() == ["--set", "train.learning_rate=2e-3"]
    assert draw("a.yaml", "best_val_loss", "--largest").stdout.split()[1] == "train.learning_rate=1e-3"
    for arguments in (("b.yaml", "best_val_loss", "--with", setting), ("c.yaml", "best_val_loss"), ("a.yaml", "accuracy")):
        assert draw(*arguments).returncode == 1, arguments


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        undisturbed = check_undisturbed(Path(name))
    run_cases({check.__name__: in_folder(check, undisturbed) for check in (
        check_killed, check_interrupted, check_at_once, check_array, check_failures, check_mistakes, check_context_added_later,
        check_long_names, check_best_draw)})
