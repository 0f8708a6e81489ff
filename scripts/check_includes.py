#!/usr/bin/env python3
"""Checks that includes point downwards: between folders as docs/architecture.md draws them, and inside a folder, where no
two files may need each other. A header and its .cpp count as one file. Also checks that only the folders that may include
torch do.

usage: check_includes.py SRC_FOLDER
"""
import re
import sys
from pathlib import Path

BELOW = {
    "base": [],
    "yaml": ["base"],
    "config": ["yaml"],
    "config_reader": ["config"],
    "cuda": ["base"],
    "text": ["config"],
    "data": ["text"],
    "data/sources": ["data"],
    "data/datasets": ["data/sources"],
    "data/statistics": ["data/datasets"],
    "ops": ["config", "cuda"],
    "attention": ["ops"],
    "distributed": ["ops"],
    "model": ["attention", "text"],
    "tasks": ["model", "data/datasets", "distributed"],
    "run": ["ops", "text"],
    "baselines": ["tasks", "run", "config_reader"],
    "infer": ["baselines", "overlap"],
    "huggingface": ["model", "run"],
    "train": ["infer", "step", "huggingface"],
    "step": ["tasks", "optim"],
    "optim": ["model", "run", "distributed"],
    "figures": ["base"],
    "overlap": ["base"],
    "compare": ["infer"],
    "inspect": ["infer", "figures"],
    "report": ["compare", "inspect"],
    "bench": ["train"],
    "cli": ["report", "bench", "data/statistics"],
}
WITHOUT_TORCH = {"base", "yaml", "config", "config_reader", "cuda", "text", "data", "data/sources", "data/datasets",
                 "data/statistics", "figures", "overlap"}
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".in"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def reachable(folder):
    found = {folder}
    for below in BELOW[folder]:
        found |= reachable(below)
    return found


# The longest folder of BELOW that holds the path; "" for none.
def folder_of(path):
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        folder = "/".join(parts[:length])
        if folder in BELOW:
            return folder
    return ""


# "run/checkpoint" for run/checkpoint.h and run/checkpoint.cpp.
def unit_of(path):
    return path.split(".")[0]


def sources(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES and folder_of(name):
            yield path, name


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def upward_includes(root):
    for path, name in sources(root):
        folder = folder_of(name)
        for number, quote, target in includes(path):
            below = folder_of(target)
            if quote == '"' and below and below not in reachable(folder):
                yield f"{path}:{number}: {folder} must not include {below}"
            if folder in WITHOUT_TORCH and TORCH.match(target):
                yield f"{path}:{number}: {folder} must not include torch"


# The first loop that a walk from `unit` runs into, as a list that starts and ends with the same unit.
def loop_from(unit, needs, path, done):
    if unit in path:
        return path[path.index(unit):] + [unit]
    if unit in done:
        return []
    for needed in sorted(needs.get(unit, ())):
        if loop := loop_from(needed, needs, path + [unit], done):
            return loop
    done.add(unit)
    return []


def loops(root):
    needs = {}
    for path, name in sources(root):
        own = unit_of(name)
        targets = {unit_of(target) for _, quote, target in includes(path) if quote == '"' and folder_of(target)}
        needs.setdefault(own, set()).update(targets - {own})
    done = set()
    for unit in sorted(needs):
        if loop := loop_from(unit, needs, [], done):
            yield f"{root}: these include each other: {' -> '.join(loop)}"
            done.update(loop)


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    found = list(upward_includes(root)) + list(loops(root))
    print("\n".join(found) if found else "all includes point downwards")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
