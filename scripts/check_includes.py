#!/usr/bin/env python3
"""Checks that includes point downwards: a folder includes only itself and what lies below it, and only the folders that
may know torch include it.

usage: check_includes.py SRC_FOLDER
"""
import re
import sys
from pathlib import Path

BELOW = {
    "core": [],
    "cuda": ["core"],
    "data": ["core"],
    "attention": ["core", "cuda"],
    "model": ["attention"],
    "train": ["model", "data"],
    "report": ["train"],
    "bench": ["train"],
    "cli": ["report", "bench"],
}
WITHOUT_TORCH = {"core", "cuda", "data"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def reachable(folder):
    found = {folder}
    for below in BELOW[folder]:
        found |= reachable(below)
    return found


def problems(source):
    for path in sorted(source.rglob("*")):
        folder = path.relative_to(source).parts[0]
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".in"} or folder not in BELOW:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match[2].split("/")[0]
            if match[1] == '"' and target in BELOW and target not in reachable(folder):
                yield f"{path}:{number}: {folder} must not include {target}"
            if folder in WITHOUT_TORCH and TORCH.match(match[2]):
                yield f"{path}:{number}: {folder} must not know torch"


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) if found else "all includes point downwards")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
