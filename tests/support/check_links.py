#!/usr/bin/env python3
"""Checks that the relative links of all Markdown files in a folder lead to existing files and headings, and in the source
tree also that the source files in documents exist.

  check_links.py FOLDER
"""
import re
import sys
from pathlib import Path

CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
SOURCE = re.compile(r"`([a-z0-9_/]+/[a-z0-9_]+\.(?:h|cpp|cu|py|sh))`")  # from the root, or from src
SKIPPED = {".git", ".deps", "build", "runs"}


def anchors(document):
    """The anchors that GitHub gives to headings: lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def problem_of(document, link):
    target, _, anchor = link.partition("#")
    path = document.parent / target if target else document
    if not path.exists():
        return "leads nowhere"
    if anchor and anchor not in anchors(path):
        return f"names a heading that {path.name} does not have"
    return ""


def problems_of(folder, document):
    text = document.read_text()
    for link in LINK.findall(CODE.sub("", text)):
        problem = "" if re.match(r"\w+:", link) else problem_of(document, link)
        if problem:
            yield f"the link {link} {problem}"
    if (folder / "src").is_dir():
        for name in SOURCE.findall(text):
            if not (folder / name).exists() and not (folder / "src" / name).exists():
                yield f"there is no {name}"


if __name__ == "__main__":
    folder, found = Path(sys.argv[1]), 0
    for document in sorted(folder.rglob("*.md")):
        if SKIPPED & set(document.relative_to(folder).parts):
            continue
        for problem in problems_of(folder, document):
            found += 1
            print(f"{document}: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)
