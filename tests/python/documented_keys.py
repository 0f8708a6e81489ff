#!/usr/bin/env python3
"""The config keys that the documents name exist.

  documented_keys.py METAFORMER ROOT
"""
import json
import re
import sys
from pathlib import Path

from common import run

CODE = re.compile(r"^```.*?^```|`[^`\n]+`|^ {4}metaformer [^\n]*$", re.MULTILINE | re.DOTALL)
KEY = re.compile(r"(?<![\w./])(?:data|model|task|train)\.[a-z_]+(?:\.[a-z_]+)*")
FILES = {"model.safetensors", "model.safetensors.index.json", "train.log"}  # of a run or a model


def known_keys(metaformer):
    """All keys, and the sections above them."""
    fields = json.loads(run(metaformer, "config", "explain", "--json"))
    keys = {field["key"] for field in fields} | {field["key"] + ".kind" for field in fields if "kinds" in field}
    return keys | {key[:at] for key in keys for at, letter in enumerate(key) if letter == "."}


def main():
    metaformer, root = sys.argv[1], Path(sys.argv[2])
    known = known_keys(metaformer)
    documents = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    named = [(document.name, key) for document in documents for code in CODE.findall(document.read_text())
             for key in KEY.findall(code) if key not in FILES]
    wrong = [f"{name}: there is no key {key}" for name, key in named if key not in known]
    assert len(named) > 50, "hardly any key was found"
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
