#!/usr/bin/env python3
"""Tests experiments/write_descriptions.py with made-up lists of packages: pairs, splits, omissions and errors.

  package_descriptions.py ROOT
"""
import functools
import gzip
import hashlib
import json
import random
import resource
import subprocess
import sys
from pathlib import Path

from common import in_folder, run_cases

SCRIPT = Path(sys.argv[1]).resolve() / "experiments/write_descriptions.py"
LISTS = ["main/binary-amd64/Packages", "main/i18n/Translation-en"]
START = "deb.example.org_debian_dists_bookworm"
HELD_OUT = 0.2
LONG = """ First line of the first paragraph,
 and its second line.
 .
 Features:
  * one of the list,
    which goes on
  * two."""


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def split_of(source_package):
    place = int(sha256(source_package.encode())[:8], 16) / 2**32
    return "validation" if place < HELD_OUT else "test" if place < 2 * HELD_OUT else "train"


def name_in(split, start="name"):
    return next(name for name in (f"{start}{number}" for number in range(1000)) if split_of(name) == split)


def package(name, synopsis, long, source=None, digest=None):
    """The entries of a package in both lists."""
    digest = digest or hashlib.md5(f"{name}{synopsis}{long}".encode()).hexdigest()
    of = f"Source: {source}\n" if source else ""
    description = f"Package: {name}\nDescription-md5: {digest}\nDescription-en: {synopsis}\n{long}".rstrip("\n")
    return (f"Package: {name}\n{of}Version: 1\nDescription: {synopsis}\nDescription-md5: {digest}\nTag: a::b,\n c::d\n\n",
            description + "\n\n")


def many():
    """Two packages of each of 100 source packages, one of them with another version than its source package."""
    return [package(f"lib{number}-{kind}", f"library {number} ({kind})", f" Text {number} of {kind}.", f"source{number}{version}")
            for number in range(100) for kind, version in (("dev", " (1.2-3)"), ("doc", ""))]


def write_lists(folder, packages, start=START, label="Debian", codename="bookworm"):
    folder.mkdir(exist_ok=True)
    release = f"Hash: SHA256\n\nLabel: {label}\nSuite: stable\nCodename: {codename}\nVersion: 12.1\nDate: now\nSHA256:\n"
    for column, name in enumerate(LISTS):
        content = "".join(entries[column] for entries in packages).encode()
        (folder / f"{start}_{name.replace('/', '_')}").write_bytes(content)
        release += f" {sha256(content)} {len(content)} {name}\n"
    (folder / f"{start}_InRelease").write_text(release)
    return folder


def start(*arguments, **environment):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, **environment)


def written(parent, packages, name="out"):
    """The rows of each split, and description.json."""
    lists = write_lists(parent / f"lists of {name}", packages)
    process = start(parent / name, "--lists", lists, "--held-out", str(HELD_OUT))
    assert process.returncode == 0, process.stderr
    rows = {split: [json.loads(line) for line in (parent / name / f"{split}.jsonl").read_text().splitlines()]
            for split in ("train", "validation", "test")}
    return rows, json.loads((parent / name / "description.json").read_text())


def check_splits(parent):
    rows, description = written(parent, many())
    for split, found in rows.items():
        sources = {f"source{row['source'].split()[1]}" for row in found}
        assert sources == {f"source{number}" for number in range(100) if split_of(f"source{number}") == split}
        assert len(found) == 2 * len(sources) == description["splits"][split]["pairs"]
        assert len(sources) == description["splits"][split]["source_packages"] > 5
        assert all(row["target"] == f"library {row['source'].split()[1]} ({row['source'].split()[3][:-1]})" for row in found)
        assert sha256((parent / "out" / f"{split}.jsonl").read_bytes()) == description["splits"][split]["sha256"], split
    assert len(description["files"]) == 3
    for name, digest in description["files"].items():
        assert sha256((parent / "lists of out" / name).read_bytes()) == digest, name
    assert description["release"] == {"suite": "stable", "codename": "bookworm", "version": "12.1", "date": "now"}
    return f"{[len(found) for found in rows.values()]} pairs"


def check_text(parent):
    name = name_in("train")
    rows, description = written(parent, [package(name, "what it  is", LONG)])
    text = "First line of the first paragraph, and its second line. Features: * one of the list, which goes on * two."
    assert rows["train"] == [{"source": text, "target": "what it is"}], rows
    assert description["splits"]["train"]["mean_words_of_source"] == 21
    assert description["splits"]["train"]["mean_words_of_target"] == 3
    return text


def check_left_out(parent):
    train, validation, test = (name_in(split) for split in ("train", "validation", "test"))
    rows, description = written(parent, [
        package("a", "one", " Same text.", train), package("b", "one", " Same\n text.", train),
        package("c", "another synopsis", " Same text.", train),
        package("d", "one", " Same text.", validation), package("e", "two", " Held out.", validation),
        package("f", "three", " Held out.", test), package("g", "four", " Same text.", test),
        package("h", "Equal", " Equal", train), package("i", "no text", "", train), package("j", "dots", " .", train),
        (package("k", "not translated", " Text.", train)[0], ""),
        package("l", "by l", " L.", train, "0" * 32), package("m", "by m", " M.", train, "0" * 32)])
    assert rows == {"train": [{"source": "Same text.", "target": "one"}, {"source": "Same text.", "target": "another synopsis"},
                              {"source": "L.", "target": "by l"}, {"source": "M.", "target": "by m"}],
                    "validation": [{"source": "Held out.", "target": "two"}], "test": []}, rows
    assert description["packages"] == 13
    assert description["left_out"] == {
        "equal to another pair of its split": 1, "long description equal to the synopsis": 1, "without a description": 1,
        "without a long description": 2, "validation: long description of an earlier split": 1,
        "test: long description of an earlier split": 2}, description["left_out"]
    return description["left_out"]


def check_order(parent):
    """Two runs write the same bytes, and the order of the lists changes only their digests."""
    packages = many()
    written(parent, packages, "first")
    written(parent, packages, "second")
    random.Random(1).shuffle(packages)
    written(parent, packages, "shuffled")
    for path in (parent / "first").iterdir():
        assert path.read_bytes() == (parent / "second" / path.name).read_bytes(), path.name
        assert path.suffix == ".json" or path.read_bytes() == (parent / "shuffled" / path.name).read_bytes(), path.name
    return "equal"


def check_other_lists(parent):
    """Updates, security updates and other archives are not read, and the output folder may exist if it is empty."""
    lists = write_lists(parent / "lists of out", [])
    write_lists(lists, many(), "deb.example.org_debian_dists_bookworm-updates", codename="bookworm-updates")
    write_lists(lists, many(), "deb.example.org_security_dists_bookworm-security", "Debian-Security", "bookworm-security")
    write_lists(lists, many(), "another.example.org_dists_nodistro", "another", "nodistro")
    (parent / "out").mkdir()
    rows, _ = written(parent, [package(name_in("train"), "synopsis", " Text.")])
    assert sum(map(len, rows.values())) == 1
    return "not read"


def check_compressed(parent):
    written(parent, many())
    lists = parent / "lists of out"
    for name in LISTS:
        path = lists / f"{START}_{name.replace('/', '_')}"
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    process = start(parent / "again", "--lists", lists, "--held-out", str(HELD_OUT))
    if not Path("/usr/lib/apt/apt-helper").exists():
        assert "there is no /usr/lib/apt/apt-helper" in process.stderr, process.stderr
        return "no apt here"
    assert process.returncode == 0, process.stderr
    assert (parent / "again/description.json").read_bytes() == (parent / "out/description.json").read_bytes()
    return "equal"


def check_errors(parent):
    lists = write_lists(parent / "lists", many())
    several = write_lists(write_lists(parent / "several", many()), many(), "deb_dists_trixie", codename="trixie")
    incomplete, damaged = write_lists(parent / "incomplete", many()), write_lists(parent / "damaged", many())
    (incomplete / f"{START}_main_i18n_Translation-en").unlink()
    with (damaged / f"{START}_main_binary-amd64_Packages").open("a") as file:
        file.write("Package: more\n\n")
    entries = tuple(entry.replace("Package: name\n", "") for entry in package("name", "what it is", " Text."))
    nameless = write_lists(parent / "nameless", many() + [entries])
    full = parent / "full"
    full.mkdir()
    (full / "file").touch()
    out = parent / "out"
    errors = {(out, "--lists", parent / "nothing"): "there is no folder", (out, "--lists", full): "no release of Debian",
              (out, "--lists", several): "several releases of Debian: bookworm, trixie",
              (out, "--lists", incomplete): f"{START}_main_i18n_Translation-en is not among the lists",
              (out, "--lists", damaged): "its SHA-256 is", (out, "--lists", nameless): "an entry names no Package", (full, "--lists", lists): "not an empty folder",
              (full / "file", "--lists", lists): "not an empty folder", (full / "file/out", "--lists", lists): "file",
              (out, "--lists", lists, "--held-out", "0.5"): "--held-out is 0.5", (out,): "there is no apt-get"}
    before = sorted(parent.rglob("*"))
    for arguments, message in errors.items():
        process = start(*arguments, env={"PATH": ""})
        assert process.returncode == 1 and message in process.stderr, (arguments, process.returncode, process.stderr)
        assert process.stderr.startswith("write_descriptions.py: ") and process.stderr.count("\n") == 1, process.stderr
        assert sorted(parent.rglob("*")) == before, arguments
    return f"{len(errors)} errors"


def check_unfinished(parent):
    """An error while writing, such as a full disk, leaves no incomplete folder."""
    lists = write_lists(parent / "lists", many())
    full = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (2000, 2000))
    process = start(parent / "out", "--lists", lists, preexec_fn=full)
    assert process.returncode == 1 and "File too large" in process.stderr and process.stderr.count("\n") == 1, process
    assert [path.name for path in parent.iterdir()] == ["lists"]
    return "nothing left behind"


if __name__ == "__main__":
    run_cases({name.removeprefix("check_"): in_folder(check) for name, check in list(globals().items())
               if name.startswith("check_")})
