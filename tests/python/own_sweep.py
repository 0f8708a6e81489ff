"""A sweep of a user: a script in an otherwise empty folder that sources the functions of `metaformer sweep-functions`. Everything is
written beside it; it shows its progress, and continues after a stop. The commands of docs/your_own_sweep.md succeed.

  own_sweep.py METAFORMER ROOT
"""
import csv
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from common import in_folder, run, run_cases
from sweep_scripts import finish, processes_of, rows, write_files
from tutorial import BLOCK, commands_of, run_command

METAFORMER, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
SOURCES = ("scripts/lib/messages.sh", "experiments/lib/sweep.sh")
VARIABLES = ("RESULTS", "RUNS", "PROGRAM", "SEEDS", "JOBS", "POLL")  # that change a sweep
SCRIPT = """#!/usr/bin/env bash
source <(metaformer sweep-functions)

for seed in $SEEDS; do
  for mixer in metric identity; do
    run tiny.yaml --set "model.mixer=$mixer" --set "train.steps=${STEPS:-40}" --set "train.seed=$seed"
  done
done
%s
finish
"""


def environment_of(folder, **changes):
    """An environment in which `metaformer` is the program of the build."""
    programs = folder / "bin"
    if not programs.exists():
        programs.mkdir(parents=True)
        (programs / "metaformer").symlink_to(METAFORMER)
    usual = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return usual | {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "SEEDS": "2 1",
                    "XDG_CACHE_HOME": str(folder / "cache")} | changes


def make_sweep(folder, extra=""):
    """The folder of the script, whose name needs quotes."""
    work = folder / "my work"
    work.mkdir()
    write_files(work, SCRIPT % extra)
    return work


def start(work, cwd="/", **changes):
    return subprocess.Popen([work / "tiny.sh"], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True, env=environment_of(work.parent, **changes))


def progress_of(err):
    return re.findall(r"^metaformer: tiny: (\d of .*)$", err, re.MULTILINE)


def check_functions(folder):
    """The program prints the functions of the repository's own sweeps, after its path."""
    printed, functions = run(METAFORMER, "sweep-functions"), "".join((ROOT / name).read_text() for name in SOURCES)
    assert printed.endswith(functions)
    set_up = printed.removesuffix(functions)
    shown = run("bash", "-euc", f"{set_up}\nprintf %s \"$sweep_program\"")
    assert Path(shown).samefile(METAFORMER) and set_up.count("\n") == 2, set_up


def check_written_beside(folder):
    work = make_sweep(folder)
    out, err = finish(start(work))
    assert "4 runs in 2 groups" in out, out
    assert {path.name for path in work.iterdir()} == {"text.txt", "tiny.yaml", "tiny.sh", "results", "runs"}
    assert [row["seed"] for row in rows(work, "results/tiny.csv")] == ["2", "2", "1", "1"]
    logs = list((work / "runs/tiny").glob("tiny-*/train.log"))
    assert len(logs) == 4, logs
    shown = progress_of(err)
    assert [line[:16] for line in shown] == [f"{done} of 4 runs done" for done in range(1, 5)], err
    assert all(re.search(r"; less than a minute left$", line) for line in shown[:3]) and shown[3] == "4 of 4 runs done", shown
    _, err = finish(start(work))
    assert "4 runs, 0 to train" in err and not progress_of(err), err
    _, err = finish(start(work, cwd=folder, RESULTS="other.csv", RUNS="other", SEEDS="3"))  # paths of the user's folder
    assert len(rows(folder, "other.csv")) == 2 and len(list(folder.glob("other/tiny-*"))) == 2, err
    return f"{len(logs)} runs"


def check_configs(folder):
    """A config beside the script, then the program's; a config beside it hides one of the same name."""
    small = "--set data.path=text.txt --set train.steps=20 --set model.layers=1 --set model.heads=2 --set model.width=16"
    work = make_sweep(folder, f"SEEDS=; run shakespeare_identity.yaml {small}; run shakespeare_metric.yaml")
    (work / "shakespeare_metric.yaml").write_text("base: tiny.yaml\ntrain: {steps: 20}\nmodel: {mixer: metric}\n")
    finish(start(work, SEEDS="1"))
    found = {row["config"]: row["parameters"] for row in rows(work, "results/tiny.csv")[2:]}
    assert set(found) == {"shakespeare_identity.yaml", "shakespeare_metric.yaml"} and len(set(found.values())) == 2, found


def check_failures(folder):
    work = make_sweep(folder, "run tiny.yaml --set data.path=missing.txt\nrun tiny.yaml --set train.learning_rate=1e30")
    _, err = finish(start(work, JOBS="2"), 1)
    assert progress_of(err)[-1] == "4 of 6 runs done, 2 failed" and "2 failed:" in err, err
    lines = sorted((line for line in err.splitlines() if line.startswith("  tiny-")), key=lambda line: "exit code 4" in line)
    logs = [Path(line.partition("; log: ")[2]) for line in lines]
    assert ["exit code 3" in line for line in lines] == [True, False] and "exit code 4" in lines[1], lines
    assert logs[0].parent.name == "logs" and logs[1].name == "train.log", logs  # only the second one had begun
    assert "missing.txt" in logs[0].read_text() and "not finite" in logs[1].read_text(), logs
    assert len(rows(work, "results/tiny.csv")) == 4


def check_wrong_use(folder):
    for words, expected in {
            "run": "run: expected run CONFIG", "run tiny.yaml --set": "run tiny.yaml: nothing follows --set",
            "run tiny.yaml --context": "run tiny.yaml: nothing follows --context", "run_with": "run_with: expected run_with MIXER",
            "run_with metric": "run_with metric: task is empty",
            "unset seed; task=(tiny.yaml); run_with metric qk_norm=true": "run_with metric qk_norm=true: seed is not set",
            "run tiny.yaml $(draw space.yaml)": "run tiny.yaml: its draw failed",
            "SEEDS=; run_keys=()": "tiny: there are no runs"}.items():
        (folder / "a").mkdir()
        work = make_sweep(folder / "a", words)
        _, err = finish(start(work), 2)
        assert expected in err.splitlines()[-1] and not (work / "runs").exists(), (words, err)
        shutil.rmtree(folder / "a")


def check_stopped(folder):
    """Stopped by Ctrl-C and by SIGKILL while runs train, a sweep ends with the results of an undisturbed one."""
    for name in "ab":
        (folder / name).mkdir()
    whole, stopped = make_sweep(folder / "a"), make_sweep(folder / "b")
    finish(start(whole, STEPS="1500", JOBS="2"))
    for number in (signal.SIGINT, signal.SIGKILL):
        before = len(list(stopped.glob("runs/tiny/tiny-*/checkpoints/step-*")))
        process = start(stopped, STEPS="1500", POLL="0.5")
        while len(list(stopped.glob("runs/tiny/tiny-*/checkpoints/step-*"))) <= before and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=60)
        if number == signal.SIGINT:
            assert process.returncode == 130 and "start it again" in err and not processes_of(stopped), (process.returncode, err)
    _, err = finish(start(stopped, STEPS="1500", JOBS="2", POLL="0.5"))
    assert "0 to train" not in err and rows(stopped, "results/tiny.csv") == rows(whole, "results/tiny.csv"), err


def check_terminal(folder):
    """On a terminal the progress is one line, within its width."""
    work = make_sweep(folder)
    pid, screen = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        os.execve(work / "tiny.sh", [str(work / "tiny.sh")], environment_of(folder, TERM="xterm"))
    output = b""
    try:
        while read := os.read(screen, 4096):
            output += read
    except OSError:
        pass  # its other side is closed
    assert os.waitpid(pid, 0)[1] == 0, output
    drawn = re.findall(r"\r\x1b\[K(metaformer: tiny: [^\r\n]+)(?=\r\x1b)", output.decode())
    assert drawn[0] == "metaformer: tiny: 0 of 4 runs done, 1 running"[:39], drawn
    assert drawn[-1] == "metaformer: tiny: 4 of 4 runs done" and max(map(len, drawn)) == 39, drawn
    assert b"is done" not in output and b"Terminated" not in output, output


def check_time_left(folder):
    """Two runs took 200 and 400 seconds. The work that is left is divided by the number of jobs, or of runs if these are fewer."""
    for number, seconds in ((1, 200), (2, 400)):
        (folder / f"{number}.json").write_text(json.dumps({"startup_seconds": 20, "wall_seconds": seconds - 20}, indent=2))
    cases = {(40, 12, 3, (0, 0), 2): "about 62 min left",  # (23 waiting + 2 running) * 300 / 2, and 20 seconds
             (40, 12, 3, (300, 900), 2): "about 58 min left",
             (14, 12, 0, (0, 100), 8): "about 4 min left",
             (13, 12, 0, (290,), 1): "less than a minute left",
             (13, 12, 1, (), 1): "",
             (100, 0, 0, (0,), 1): "about 8.3 h left",
             (2000, 0, 0, (0,), 2): "about 3.5 days left"}
    for (all_runs, finished, failed, running, jobs), expected in cases.items():
        children = " ".join(f"[{pid}]=0" for pid, _ in enumerate(running, 1))
        began = " ".join(f"[{pid}]=$((EPOCHSECONDS - {seconds}))" for pid, seconds in enumerate(running, 1))
        (folder / "left.sh").write_text(
            f"source <(metaformer sweep-functions)\nJOBS={jobs} all={all_runs} finished={finished} failed={failed}\n"
            f"declare -A children=({children}) began=({began})\nsummaries=(1.json 2.json)\ntime_left\nsummaries=()\ntime_left\n"
            "summaries=(deleted.json)\ntime_left\n")
        shown = run_command("bash left.sh", folder, environment_of(folder)).strip()
        assert shown == expected, (all_runs, finished, failed, running, jobs, shown)
    return f"{len(cases)} cases"


def check_mistakes(folder):
    work, environment = make_sweep(folder), environment_of(folder)
    (work / "late.sh").write_text("cd /\nsource <(metaformer sweep-functions)\n")
    (work / "slurm_script").write_text("source <(metaformer sweep-functions)\n")
    (work / "best.sh").write_text("source <(metaformer sweep-functions)\nrun_best_draw tiny.yaml best_val_loss\n")
    cases = {"bash -c 'source <(metaformer sweep-functions)'": "is a bash script",
             "bash < tiny.sh": "is a bash script",
             "bash late.sh": "before the script changes its folder",
             "bash slurm_script": "--wrap",
             "bash best.sh": "run_best_draw tiny.yaml: left out here",
             "PROGRAM=/nowhere ./tiny.sh": "PROGRAM=/nowhere: no such program"}
    for command, expected in cases.items():
        result = subprocess.run(["bash", "-c", command], cwd=work, env=environment, capture_output=True, text=True)
        assert result.returncode == 2 and expected in result.stderr, (command, result)
        assert result.stderr.count("\n") == 1 and not (work / "runs").exists(), (command, result)
    shown = subprocess.run(["bash", "-ic", "source <(metaformer sweep-functions); echo still here"], env=environment,
                           capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    assert "still here" in shown, shown  # a mistake in an interactive shell does not close it
    return f"{len(cases)} mistakes"


def check_page(folder):
    """The commands of the page, in one folder."""
    work, environment = folder / "work", environment_of(folder)
    del environment["SEEDS"]
    work.mkdir()
    commands = [command for block in BLOCK.findall((ROOT / "docs/your_own_sweep.md").read_text()) for command in commands_of(block)]
    outputs = [run_command(command, work, environment) for command in commands]
    assert "12 runs in 2 groups" in outputs[-1] and "(6)" in outputs[-1], outputs[-1]
    seeds = {}
    for name in ("mixers", "second"):
        with (work / f"results/{name}.csv").open(newline="") as file:
            seeds[name] = sorted(row["seed"] for row in csv.DictReader(file))
    assert seeds == {"mixers": sorted(["1337", "1", "2", "3"] * 2), "second": ["4", "4", "5", "5"]}, seeds
    assert (work / "report.html").exists()
    return f"{len(commands)} commands"


if __name__ == "__main__":
    run_cases({check.__name__: in_folder(check) for check in (
        check_functions, check_written_beside, check_configs, check_failures, check_wrong_use, check_stopped, check_terminal,
        check_time_left, check_mistakes, check_page)})
