#!/usr/bin/env python3
"""Checks that the config keys in the documents exist, and that the generated tables and figures of README.md, docs/results.md and
docs/results/*.md equal the output of their commands for experiments/results.

  documents.py METAFORMER ROOT
"""
import json
import re
import sys
from pathlib import Path

from common import in_folder, run, run_cases

METAFORMER, ROOT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(ROOT / "experiments"))
import update_results  # noqa: E402

CODE = re.compile(r"^```.*?^```|`[^`\n]+`|^ {4}metaformer [^\n]*$", re.MULTILINE | re.DOTALL)
KEY = re.compile(r"(?<![\w./])(?:data|model|task|train)\.[a-z_]+(?:\.[a-z_]+)*")
FILES = {"model.safetensors", "model.safetensors.index.json", "model.gguf", "train.log"}  # files of a run or a model, not keys
RESULTS = [ROOT / "README.md", ROOT / "docs/results.md", *sorted((ROOT / "docs/results").glob("*.md"))]
EXPECTED = {"shakespeare_cpu", "shakespeare_score_std", "shakespeare_ladder", "shakespeare_tuned", "shakespeare_heads",
            "sorter_heads", "shakespeare_block", "shakespeare_block_time", "shakespeare_depth", "shakespeare_depth_heads",
            "shakespeare_positions", "shakespeare_fast", "shakespeare_good", "shakespeare_subword", "shakespeare_word", "imdb",
            "imdb_best", "imdb_same_recipe", "imdb_tuned", "sorter", "sorter_hard", "metric_failure", "shakespeare_strong",
            "shakespeare_field"}


def known_keys():
    """All keys, and the sections above them."""
    fields = json.loads(run(METAFORMER, "config", "explain", "--json"))
    keys = {field["key"] for field in fields} | {field["key"] + ".kind" for field in fields if "kinds" in field}
    return keys | {key[:at] for key in keys for at, letter in enumerate(key) if letter == "."}


def check_keys():
    known = known_keys()
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = [(document.name, key) for document in documents for code in CODE.findall(document.read_text())
             for key in KEY.findall(code) if key not in FILES]
    wrong = [f"{name}: there is no key {key}" for name, key in named if key not in known]
    assert len(named) > 50 and not wrong, wrong
    return f"{len(named)} keys exist"


def tables_in(path):
    return {Path(table[3].split()[0]).stem for table in update_results.TABLE.finditer(path.read_text())}


def check_presence():
    readme, *pages = map(tables_in, RESULTS)
    found = set().union(*pages)
    assert "shakespeare_strong" in readme, "README.md lacks its generated table"
    assert EXPECTED <= found, f"docs/results lacks the generated tables {sorted(EXPECTED - found)}"
    return f"{len(found)} tables"


def with_another_digit(text):
    """The text with another last digit in its first generated table."""
    at = max(digit.start() for digit in re.finditer(r"\d", text[:update_results.TABLE.search(text).end()]))
    return f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1:]}"


def check_tables(folder, path):
    found = len(tables_in(path))
    stale = update_results.update(path, METAFORMER, check=True)
    assert not stale, f"not current: {[str(file) for file in stale]}; run experiments/update_results.py {path.relative_to(ROOT)}"
    if not found:
        return "no tables"
    # Another number, and missing figures, are found.
    copy = folder / "docs/results" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_text(with_another_digit(path.read_text()))
    stale = update_results.update(copy, METAFORMER, check=True)
    assert {copy, *update_results.current_figures(copy, METAFORMER)} <= set(stale), "a change is not found"
    return f"{found} tables are current"


def check_drawing(folder, name):
    run(sys.executable, ROOT / f"experiments/{name}.py", ROOT / f"experiments/results/{name}.csv", "--draw", folder / "drawn.svg")
    drawn, kept = (folder / "drawn.svg").read_text(), ROOT / f"docs/figures/{name}.svg"
    assert drawn == kept.read_text(), f"not current: {kept}; run experiments/{name}.py with --draw"
    # Colours of light and dark ground and dashes are those of the program's figures.
    rule = re.compile(r"\.[cp]\d\{[a-z]+:#[0-9a-f]{6}\}|\.h\d\{[^}]*\}")
    rules, of_program = rule.findall(drawn), (ROOT / "docs/figures/shakespeare_ladder.svg").read_text()
    wrong = [each for each in rules if each not in of_program]
    assert len(rules) == 2 * 2 * 8 + 5 and not wrong, wrong
    lines = re.findall(r'class="line c(\d)( h\d)?"', drawn)
    assert lines and all(bool(dash) == (int(colour) >= 3) for colour, dash in lines), "dashes begin with the fourth line"
    return f"{len(lines)} lines"


if __name__ == "__main__":
    run_cases({"keys": check_keys, "presence of tables": check_presence,
               **{f"figure {name}": in_folder(check_drawing, name) for name in ("data_scale", "long_contexts")},
               **{f"tables of {path.relative_to(ROOT)}": in_folder(check_tables, path) for path in RESULTS}})
