#!/usr/bin/env python3
"""Writes the descriptions of Debian's packages as pairs for a summariser: JSON lines with the long description as "source" and
the one-line synopsis as "target". train.jsonl, validation.jsonl and test.jsonl have no source package and no long description
in common. description.json describes the sources, the omitted packages and the output.

Reads apt's lists of component main for amd64 in the release of the machine's apt sources, without its updates. The script fetches
them into a temporary folder without a change of the machine's apt; --lists reads a folder of such lists instead.

  experiments/write_descriptions.py debian_descriptions
  metaformer train --config summaries_scaled_dot_product.yaml
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

LISTS = ["main/binary-amd64/Packages", "main/i18n/Translation-en"]
SUFFIXES = ["", ".lz4", ".zst", ".xz", ".gz", ".bz2", ".lzma"]  # of lists that apt keeps compressed
APT_HELPER = "/usr/lib/apt/apt-helper"
SPLITS = ["train", "validation", "test"]
# apt reads these after the machine's settings. #clear also removes the machine's commands after an update.
APT_SETTINGS = """
#clear APT::Update;
#clear APT::Architectures;
#clear Acquire::Languages;
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}/cache";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
Acquire::Languages {{ "en"; }};
"""


class Problem(Exception):
    """An error with a message of one line."""


def fetch(folder):
    """Lets apt fetch the lists of all its sources. Returns the folder and apt's first complaint, which is not always an error: the
    failed source may be other than Debian."""
    if not shutil.which("apt-get"):
        raise Problem("there is no apt-get to fetch the lists; --lists FOLDER reads lists from another machine")
    folder.chmod(0o755)  # apt downloads as another user if root starts it
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "apt.conf").write_text(APT_SETTINGS.format(folder=folder))
    update = subprocess.run(["apt-get", "-c", folder / "apt.conf", "update"], env=os.environ | {"LC_ALL": "C"},
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    complaints = [line for line in update.stderr.splitlines() if line[:3] in ("E: ", "W: ")]
    return folder / "lists", complaints[0][3:] if complaints else ""


def unpacked(path):
    if path.suffix not in SUFFIXES[1:]:
        return path.read_bytes()
    if not Path(APT_HELPER).exists():
        raise Problem(f"{path.name} is compressed, and there is no {APT_HELPER} to read it")
    helper = subprocess.run([APT_HELPER, "cat-file", path], capture_output=True)
    if helper.returncode:
        reasons = helper.stderr.decode(errors="replace").splitlines()
        raise Problem(f"{APT_HELPER} cannot read {path.name}: {reasons[0] if reasons else helper.returncode}")
    return helper.stdout


def release_fields(text):
    """Fields of one line, such as Suite, and the SHA-256 digests of the release's files by their names."""
    fields, digests, section = {}, {}, ""
    for line in text.split("\n"):
        if not line.startswith(" "):
            section, _, value = line.partition(":")
            fields.setdefault(section, value.strip())
        elif section == "SHA256" and len(line.split()) == 3:
            digest, _, name = line.split()
            digests[name] = digest
    return fields, digests


def find_release(lists):
    """Path, fields and digests of the main release. Updates have a codename such as bookworm-updates, and security
    updates another label."""
    if not lists.is_dir():
        raise Problem(f"there is no folder {lists}")
    found = []
    for path in sorted([*lists.glob("*_InRelease"), *lists.glob("*_Release")]):
        fields, digests = release_fields(path.read_text(encoding="utf-8", errors="replace"))
        if fields.get("Label") == "Debian" and "-" not in fields.get("Codename", "-"):
            found.append((path, fields, digests))
    codenames = sorted({fields["Codename"] for _, fields, _ in found})
    if len(codenames) != 1:
        raise Problem(f"the lists are of several releases of Debian: {', '.join(codenames)}" if codenames else
                      "no release of Debian (*_InRelease) is among the lists")
    return found[0]


def read_lists(lists):
    """The texts of the two lists, and the entries of description.json for the release and its files."""
    release, fields, digests = find_release(lists)
    start = release.name.rpartition("_")[0]
    files, texts = {release.name: hashlib.sha256(release.read_bytes()).hexdigest()}, []
    for name in LISTS:
        path = lists / f"{start}_{name.replace('/', '_')}"
        present = [path.with_name(path.name + suffix) for suffix in SUFFIXES if path.with_name(path.name + suffix).is_file()]
        if not present:
            raise Problem(f"{path.name} is not among the lists")
        content = unpacked(present[0])
        files[path.name] = hashlib.sha256(content).hexdigest()
        if files[path.name] != digests.get(name):
            raise Problem(f"{present[0].name} is not the list that {release.name} names: its SHA-256 is {files[path.name]}, "
                          f"not {digests.get(name)}; fetch both again")
        texts.append(content.decode())
    names = {"suite": "Suite", "codename": "Codename", "version": "Version", "date": "Date"}
    return texts, {"release": {key: fields.get(field) for key, field in names.items()}, "files": files}


def stanzas(text):
    """The fields of each package. Lines that continue a field begin with a space."""
    for stanza in text.split("\n\n"):
        fields, name = {}, None
        for line in stanza.strip("\n").split("\n"):
            if line.startswith((" ", "\t")):
                fields[name] += "\n" + line
            elif line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields and "Package" not in fields:
            raise Problem(f"an entry names no Package: it begins with {stanza.strip()[:60]!r}")
        if fields:
            yield fields


def plain(lines):
    """The text as one line. A line with only a dot separates paragraphs."""
    return " ".join(word for line in lines if line.strip() != "." for word in line.split())


def read_pairs(packages, translation):
    """(source package, package, long description, synopsis) in order, and the number of omitted packages."""
    # The package is part of the key, because descriptions of several packages may have one digest.
    descriptions = {(fields["Package"], fields.get("Description-md5")): fields.get("Description-en", "")
                    for fields in stanzas(translation)}
    pairs, left_out = [], Counter()
    for fields in stanzas(packages):
        synopsis, *lines = descriptions.get((fields["Package"], fields.get("Description-md5")), "").split("\n")
        source, target = plain(lines), plain([synopsis])
        if not target:
            left_out["without a description"] += 1
        elif not source:
            left_out["without a long description"] += 1
        elif source == target:
            left_out["long description equal to the synopsis"] += 1
        else:
            source_package = fields.get("Source", fields["Package"]).split(" (")[0]
            pairs.append((source_package, fields["Package"], source, target))
    return sorted(pairs), left_out


def split_of(source_package, held_out):
    place = int(hashlib.sha256(source_package.encode()).hexdigest()[:8], 16) / 2**32
    return "validation" if place < held_out else "test" if place < 2 * held_out else "train"


def split(pairs, held_out, left_out):
    """Pairs of each split with their source package. Equal pairs occur once, and a long description only in the first split
    that has it."""
    rows = {name: [] for name in SPLITS}
    for source_package, _, source, target in pairs:
        rows[split_of(source_package, held_out)].append((source_package, source, target))
    sources_before = set()
    for name in SPLITS:
        kept = {}
        for source_package, source, target in rows[name]:
            if source in sources_before:
                left_out[f"{name}: long description of an earlier split"] += 1
            elif (source, target) in kept:
                left_out["equal to another pair of its split"] += 1
            else:
                kept[source, target] = source_package
        sources_before.update(source for source, _ in kept)
        rows[name] = [(source_package, *pair) for pair, source_package in kept.items()]
    return rows


def write_split(path, rows):
    """Returns the split's entry in description.json."""
    content = "".join(json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n" for _, source, target in rows)
    path.write_text(content, encoding="utf-8", newline="\n")
    words = [sum(len(row[column].split()) for row in rows) for column in (1, 2)]
    return {"pairs": len(rows), "source_packages": len({row[0] for row in rows}),
            "mean_words_of_source": round(words[0] / max(len(rows), 1), 2),
            "mean_words_of_target": round(words[1] / max(len(rows), 1), 2),
            "sha256": hashlib.sha256(content.encode()).hexdigest()}


@contextmanager
def whole_folder(folder):
    """A temporary folder beside `folder`, which takes its name at the end, and is removed after an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def write(folder, lists, held_out):
    (packages, translation), description = read_lists(lists)
    pairs, left_out = read_pairs(packages, translation)
    description |= {"held_out": held_out, "packages": len(pairs) + left_out.total()}
    rows = split(pairs, held_out, left_out)
    with whole_folder(folder) as unfinished:
        description["splits"] = {name: write_split(unfinished / f"{name}.jsonl", rows[name]) for name in SPLITS}
        description["left_out"] = dict(sorted(left_out.items()))
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        (unfinished / "description.json").write_text(text, encoding="utf-8", newline="\n")
    return description


def fetch_and_write(folder, held_out):
    with tempfile.TemporaryDirectory() as temporary:
        lists, complaint = fetch(Path(temporary))
        try:
            return write(folder, lists, held_out)
        except Problem as problem:
            raise Problem(f"{problem}; apt-get update: {complaint}" if complaint else str(problem)) from problem


def report(description):
    release = description["release"]
    print(f"Debian {release['version'] or ''} {release['codename']} of {release['date']}: {description['packages']} packages")
    for name, facts in description["splits"].items():
        print(f"{name}: {facts['pairs']} pairs of {facts['source_packages']} source packages, mean words "
              f"{facts['mean_words_of_source']} and {facts['mean_words_of_target']}")
    for reason, count in description["left_out"].items():
        print(f"left out, {reason}: {count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", type=float, default=0.05,
                        help="fraction of the source packages for each of validation and test")
    parser.add_argument("--lists", type=Path, help="folder with apt's lists, Translation-en included")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    try:
        if not 0 < arguments.held_out < 0.5:
            raise Problem(f"--held-out is {arguments.held_out}, not between 0 and 0.5")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise Problem(f"{arguments.folder} exists and is not an empty folder")
        report(write(folder, arguments.lists, arguments.held_out) if arguments.lists else
               fetch_and_write(folder, arguments.held_out))
    except (Problem, OSError, UnicodeDecodeError) as problem:
        sys.exit(f"write_descriptions.py: {problem}")


if __name__ == "__main__":
    main()
