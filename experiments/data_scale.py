#!/usr/bin/env python3
"""How the cost of data grows with the size of a text: preparing its tokens, starting to train from them, and training.

Text: files of installed Debian packages (documentation, headers, manuals, programs), repeated with exchanged digits. For every size:
`metaformer data prepare` into bytes and into byte-level BPE; then `metaformer train` from the bytes, warm, and with dropped page caches
(as root), and from the text in memory, of which a large one has its first 100 MB. step_ratio is the median over the rounds of the time of
a step divided by that of the round with the text in memory. Writes every number into a CSV file.

  experiments/data_scale.py experiments/results/data_scale.csv --bpe tokenizer.json
  experiments/data_scale.py experiments/results/data_scale.csv --draw docs/figures/data_scale.svg
  experiments/data_scale.py small.csv --sizes 1e6 1e7 --folder /tmp/data_scale
"""
import argparse
import csv
import gzip
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from inspect_runs import ROOT

sys.path.insert(0, str(ROOT / "experiments/lib"))
from line_figure import line_figure  # noqa: E402

SOURCES = ("/usr/share/doc", "/usr/share/man", "/usr/include", "/usr/share/perl", "/usr/lib/python3", "/usr/lib/python3.11")
MOST_IN_MEMORY = 250_000_000
WARM_UP = 100  # steps without timing, in which the process reads the pages of its libraries
MODEL = [f"train.log_interval={WARM_UP}", "train.steps=700", "train.eval_interval=700", "train.evaluation.tokens=8192",
         "train.seed=1"]


def texts_of_packages(most):
    """Text files of installed packages, up to `most` bytes in all."""
    for root in SOURCES:
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.islink(path) or most <= 0:
                    continue
                try:
                    content = gzip.open(path).read() if name.endswith(".gz") else Path(path).read_bytes()
                    text = content.decode()
                except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile):
                    continue
                if "\0" in text:
                    continue
                most -= len(content)
                yield text + "\n"


def write_text(path, size):
    """Writes about `size` bytes. Every repetition exchanges the digits of all numbers."""
    draw = random.Random(1)
    base = "".join(texts_of_packages(min(size, 200_000_000))).encode()
    with open(path, "wb") as file:
        while (left := size - file.tell()) > 3:
            digits = draw.sample(b"0123456789", 10)
            piece = base.translate(bytes.maketrans(b"0123456789", bytes(digits)))[:left]
            file.write(piece.decode(errors="ignore").encode())


def text_in_memory(folder, size):
    """A text that the program keeps in memory: the whole one, or its first 100 MB."""
    if size <= MOST_IN_MEMORY:
        return folder / "text.txt"
    with open(folder / "text.txt", "rb") as file:
        (folder / "first.txt").write_text(file.read(100_000_000).decode(errors="ignore"))
    return folder / "first.txt"


def measured(words, field, pause):
    """Runs a program: its output, seconds, and the largest value of a field of /proc/PID/status in MiB: VmHWM, the resident memory,
    or RssAnon, without mapped files, which is read after every pause. Short pauses make the program slower."""
    start = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        if process.args[0] in Path(f"/proc/{process.pid}/cmdline").read_text() and (found := re.search(rf"{field}:\s+(\d+)", status)):
            peak = max(peak, int(found[1]))
        time.sleep(pause)
    printed, messages = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {messages}")
    return printed, time.monotonic() - start, peak / 1024


def drop_caches():
    subprocess.run(["sync"], check=True)
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def train(program, folder, data, *settings):
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    sets = [word for setting in (*MODEL, f"data.path={data}", *settings) for word in ("--set", setting)]
    printed, _, memory = measured([program, "train", "--config", "shakespeare_base.yaml", *sets, "--out", out, "--json"], "RssAnon", pause=0.25)
    summary = json.loads(printed)
    records = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    times = [(record["step"], record["seconds"]) for record in records if record["split"] == "train"]
    (first, start), (last, end) = times[0], times[-1]
    return {"start_seconds": round(summary["startup_seconds"], 3), "ms_per_step": round(1000 * (end - start) / (last - first), 3),
            "memory_mib": round(memory)}


def measure(program, folder, size, tokenizer, rounds, bpe):
    text, tokens = folder / "text.txt", folder / "tokens"
    shutil.rmtree(tokens, ignore_errors=True)
    command = [program, "data", "prepare", text, "--tokenizer", bpe if tokenizer == "bpe" else tokenizer, "--out", tokens]
    _, seconds, memory = measured(command, "VmHWM", pause=0.02)
    row = {"bytes": size, "tokenizer": tokenizer, "prepare_mb_per_second": round(size / 1e6 / seconds, 1),
           "prepare_memory_mib": round(memory)}
    with open(text, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # it would take the tokens' place in the page cache
    runs = {"tokens": [], "text": [], "cold": []}
    for _ in range(rounds if tokenizer == "byte" else 0):
        runs["tokens"].append(train(program, folder, tokens))
        runs["text"].append(train(program, folder, text_in_memory(folder, size), "data.tokenizer=byte"))
        if drop_caches():
            runs["cold"].append(train(program, folder, tokens))
    for name, found in runs.items():
        for key in ("start_seconds", "ms_per_step", "memory_mib"):
            is_known = found and (name != "text" or size <= MOST_IN_MEMORY or key == "ms_per_step")
            row[f"{name}_{key}"] = statistics.median(run[key] for run in found) if is_known else ""
    for name in ("tokens", "cold"):
        ratios = [run["ms_per_step"] / text["ms_per_step"] for run, text in zip(runs[name], runs["text"])]
        row[f"{name}_step_ratio"] = round(statistics.median(ratios), 4) if ratios else ""
        row[f"{name}_step_ratios"] = " ".join(f"{ratio:.4f}" for ratio in sorted(ratios))
    return row


def draw(rows, path):
    def line(tokenizer, key, factor=1):
        return [(int(row["bytes"]) // 1_000_000, factor * float(row[key])) for row in rows
                if row["tokenizer"] == tokenizer and row[key] != ""]

    def training(key, factor=1):
        return {"tokens in files": line("byte", f"tokens_{key}", factor), "text in memory": line("byte", f"text_{key}", factor)}

    speed = "prepare_mb_per_second"
    panels = [("preparing", "MB/s", {"bytes": line("byte", speed), "byte-level BPE": line("bpe", speed)}),
              ("start of training", "ms", training("start_seconds", 1000)), ("memory of training", "MiB", training("memory_mib"))]
    path.write_text(line_figure("Cost of data against the size of the text", "MB of text", panels))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--program", default=ROOT / "build/release/metaformer")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6, 1e8, 1e9, 1e10], help="bytes of text")
    parser.add_argument("--bpe", type=Path, help="tokenizer.json of a byte-level BPE; without it only bytes are measured")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/metaformer_data_scale"), help="needs three times the largest size")
    parser.add_argument("--rounds", type=int, default=5, help="trainings of each kind, interleaved")
    parser.add_argument("--draw", type=Path, help="only draw the results as this SVG file")
    arguments = parser.parse_args()
    if arguments.draw:
        with open(arguments.results, newline="") as file:
            return draw(list(csv.DictReader(file)), arguments.draw)
    rows = []
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for size in map(int, arguments.sizes):
        write_text(arguments.folder / "text.txt", size)
        for tokenizer in ("byte", "bpe") if arguments.bpe else ("byte",):
            rows.append(measure(arguments.program, arguments.folder, size, tokenizer, arguments.rounds, arguments.bpe))
            print(*rows[-1].values(), sep=", ", flush=True)
            with open(arguments.results, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    main()
