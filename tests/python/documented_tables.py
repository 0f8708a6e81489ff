#!/usr/bin/env python3
"""The generated tables and figures of README.md and docs/results.md are those that their commands make of
experiments/results.

  documented_tables.py METAFORMER ROOT
"""
import re
import sys
import tempfile
from pathlib import Path

METAFORMER, ROOT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(ROOT / "experiments"))
import update_results  # noqa: E402

EXPECTED = {"README.md": {"shakespeare_strong"},
            "docs/results.md": {"shakespeare_cpu", "shakespeare_score_std", "shakespeare_ladder", "shakespeare_tuned",
                                "shakespeare_heads", "sorter_heads", "shakespeare_block", "shakespeare_block_time",
                                "shakespeare_depth", "shakespeare_depth_heads", "shakespeare_positions", "shakespeare_fast",
                                "shakespeare_good", "shakespeare_subword", "shakespeare_word", "imdb", "imdb_best",
                                "imdb_same_recipe", "imdb_tuned", "sorter",
                                "sorter_hard", "metric_failure",
                                "shakespeare_strong"}}


def check_that_changes_are_found(path):
    """A table whose number of seeds is another one, and a figure that is another one."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_text(re.sub(r"\| (\d) \|", "| 9 |", path.read_text(), count=1))
        stale = update_results.update(copy, METAFORMER, check=True)
        assert copy in stale, "a changed table is not found"
        figures = set(update_results.current_figures(copy, METAFORMER))
        assert figures <= set(stale), "missing figures are not found"


def main():
    for name, files in EXPECTED.items():
        path = ROOT / name
        found = {Path(match[3].split()[0]).stem for match in update_results.TABLE.finditer(path.read_text())}
        assert files <= found, f"{name} lacks the generated tables {sorted(files - found)}"
        stale = update_results.update(path, METAFORMER, check=True)
        assert not stale, f"not current: {[str(file) for file in stale]}; run experiments/update_results.py {name}"
        check_that_changes_are_found(path)
        print(f"{name}: {len(found)} tables are current")


if __name__ == "__main__":
    main()
