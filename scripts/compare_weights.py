#!/usr/bin/env python3
"""Checks that two builds of metaformer train the same weights, byte for byte, for every config in configs/, after
a few steps with the same seed. A refactoring must not change them.

  scripts/compare_weights.py OLD NEW [--old-configs DIR] [--new-configs DIR] [--steps 3] [--only NAME ...]

OLD and NEW are executables, for example build/release/metaformer of two checkouts. Each reads its own configs (default:
configs/ of this checkout), so that the names of keys may differ. Exit code 1 if weights differ or a run fails.
"""
import argparse
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = {"negative": "dull bad poor weak stale", "positive": "fine good rich strong fresh"}
NEUTRAL = "the a film plot with and of scene was it in story"


# Configs without a corpus read a table of texts and labels: CSV, or JSON lines in the format of Amazon's reviews.
def write_tables(folder):
    draw = random.Random(1)
    rows = []
    for index in range(400):
        label = draw.choice(list(WORDS))
        words = draw.choices(NEUTRAL.split(), k=12) + draw.choices(WORDS[label].split(), k=4)
        draw.shuffle(words)
        rows.append((f"{' '.join(words)} {index}", label))
    csv = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    (folder / "table.csv").write_text(csv)
    stars = {"negative": 1.0, "positive": 5.0}
    lines = [json.dumps({"reviewText": text, "overall": stars[label]}) for text, label in rows]
    (folder / "table.jsonl").write_text("\n".join(lines) + "\n")


def overrides_for(program, config, folder, steps):
    overrides = []
    whole = subprocess.run([program, "config", "dump", "--config", str(config)], capture_output=True, text=True).stdout
    # A linear model is fitted in one call and has no steps.
    if not re.search(r"^model:\n(  .*\n)*?  kind: linear$", whole, re.MULTILINE):
        overrides += [f"train.{key}={steps}" for key in ("steps", "eval_interval", "checkpoint_interval")]
    if config.stem == "text_classifier":
        overrides.append(f"data.path={folder}/table.csv")
    if config.stem.startswith("reviews"):
        overrides.append(f"data.path={folder}/table.jsonl")
    return overrides


def train(program, config, out, overrides):
    command = [program, "train", "--config", str(config), "--out", str(out), "--device", "cpu"]
    for override in overrides:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


# {name: (type, shape, bytes)} of the tensors of a safetensors file.
def tensors(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    data = content[8 + size:]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def difference(old, new):
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            return f"{name} is only in one of the two"
        if old[name] != new[name]:
            return f"{name} differs"
    return ""


# "" if both programs train the same weights, otherwise the problem.
def compare(name, arguments, folder):
    weights = []
    for side, program, configs in (("old", arguments.old, arguments.old_configs),
                                   ("new", arguments.new, arguments.new_configs)):
        config = configs / f"{name}.yaml"
        if not config.exists():
            return f"{config}: no such config"
        out = folder / f"{name}-{side}"
        overrides = overrides_for(program, config, folder, arguments.steps)
        if problem := train(program, config, out, overrides):
            return f"{side}: {problem}"
        weights.append(tensors(out / "checkpoints/last/model.safetensors"))
    return difference(*weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=os.path.abspath)
    parser.add_argument("new", type=os.path.abspath)
    parser.add_argument("--old-configs", type=Path, default=ROOT / "configs")
    parser.add_argument("--new-configs", type=Path, default=ROOT / "configs")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    arguments = parser.parse_args()
    arguments.old_configs, arguments.new_configs = arguments.old_configs.resolve(), arguments.new_configs.resolve()
    names = arguments.only or sorted({path.stem for folder in (arguments.old_configs, arguments.new_configs)
                                      for path in folder.glob("*.yaml")})
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder))
        for name in names:
            problem = compare(name, arguments, Path(folder))
            failed += bool(problem)
            print(f"{name}: {problem or 'equal'}", flush=True)
    print(f"{len(names) - failed} of {len(names)} configs train the same weights")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
