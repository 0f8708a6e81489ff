#!/usr/bin/env python3
"""Checks that the includes between folders match the links between their libraries:

  - a file includes only folders that its library links, directly or through PUBLIC links, and torch only if
    metaformer_torch is linked in the same way;
  - every link between libraries is needed by an include;
  - neither files nor folders include each other in a loop. A header and its .cpp count as one file.

usage: check_includes.py SRC_FOLDER      reads the links in SRC_FOLDER/CMakeLists.txt
"""
import re
import sys
from pathlib import Path

COMMAND = re.compile(r"\b(metaformer_library|metaformer_torch_library|target_link_libraries)\(([^()]*)\)")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".in"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def links_of(cmake):
    """For each library the libraries of this program that it links, and those that it links publicly. All without the
    prefix metaformer_."""
    own, public = {}, {}
    for command, arguments in COMMAND.findall(re.sub(r"#.*", "", cmake.read_text())):
        target, *words = arguments.split()
        if "$" in target or target == "metaformer":
            continue  # the body of a function; the program
        name, scope = target.removeprefix("metaformer_"), ""
        links, seen = own.setdefault(name, set()), public.setdefault(name, set())
        if command == "metaformer_torch_library":
            seen.add("torch")  # also for its compiled header, which needs no include
        for word in words:
            if word in {"SOURCES", "LINKS", "PUBLIC", "PRIVATE"}:
                scope = word
            elif word.startswith("metaformer_"):
                links.add(word.removeprefix("metaformer_"))
                if scope != "PRIVATE":
                    seen.add(word.removeprefix("metaformer_"))
    return own, public


# The libraries that files of the library may include.
def allowed(name, own, public):
    found, waiting = {name}, own[name] | public[name]
    while waiting:
        library = waiting.pop()
        if library not in found:
            found.add(library)
            waiting |= public.get(library, set())
    return found


# The library that a file of src belongs to: its topmost folder; "" for the program's own files.
def library_of(path):
    return path.partition("/")[0] if "/" in path else ""


# "run/checkpoint" for run/checkpoint.h and run/checkpoint.cpp.
def unit_of(path):
    return path.partition(".")[0]


def folder_of(path):
    return path.rpartition("/")[0]


# (path, line, name in src, included name) of every include of this program's files or of torch.
def includes(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in SUFFIXES or not library_of(name):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (match := INCLUDE.match(line)) and (TORCH.match(match[2]) or match[1] == '"' and library_of(match[2])):
                yield path, number, name, match[2]


def wrong_includes(found, own, public):
    for path, number, name, target in found:
        library, below = library_of(name), "torch" if TORCH.match(target) else library_of(target)
        if library not in own:
            yield f"{path}: {library} is no library"
        elif below not in allowed(library, own, public):
            yield f"{path}:{number}: {library} must not include {below}, which it does not link"


def unused_links(found, own, cmake):
    used = {(library_of(name), library_of(target)) for _, _, name, target in found}
    for name, links in sorted(own.items()):
        for below in sorted(links):
            if name != "torch" and (name, below) not in used:
                yield f"{cmake}: {name} links {below}, and includes nothing of it"


# The first loop found from `unit` on, as a list that starts and ends with the same unit.
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


# `part_of` maps a file to its unit or folder, which must not be part of a loop.
def loops(found, part_of):
    needs = {}
    for _, _, name, target in found:
        if not TORCH.match(target):
            needs.setdefault(part_of(name), set()).update({part_of(target)} - {part_of(name)})
    done = set()
    for part in sorted(needs):
        if loop := loop_from(part, needs, [], done):
            yield f"these include each other: {' -> '.join(loop)}"
            done.update(loop)


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1], "CMakeLists.txt").is_file():
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    cmake = root / "CMakeLists.txt"
    own, public = links_of(cmake)
    found = list(includes(root))
    problems = [*wrong_includes(found, own, public), *unused_links(found, own, cmake), *loops(found, unit_of),
                *loops(found, folder_of)]
    if problems:
        sys.exit("\n".join(problems))
    print("all includes follow links")


if __name__ == "__main__":
    main()
