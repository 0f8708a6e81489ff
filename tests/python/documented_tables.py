#!/usr/bin/env python3
"""The generated tables of README.md and docs/results.md are those that `metaformer compare` makes of experiments/results.

  documented_tables.py METAFORMER ROOT
"""
import sys
from pathlib import Path

METAFORMER, ROOT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(ROOT / "experiments"))
import update_tables  # noqa: E402

EXPECTED = {"README.md": {"shakespeare_cpu"},
            "docs/results.md": {"shakespeare_cpu", "shakespeare_score_std", "shakespeare_ladder", "shakespeare_block",
                                "shakespeare_block_time", "shakespeare_positions", "shakespeare_fast", "shakespeare_subword",
                                "shakespeare_word", "imdb", "imdb_best", "sorter", "sorter_hard"}}


def main():
    for name, files in EXPECTED.items():
        text = (ROOT / name).read_text()
        found = {Path(match[2].split()[1]).stem for match in update_tables.TABLE.finditer(text)}
        assert files <= found, f"{name} lacks the generated tables {sorted(files - found)}"
        assert update_tables.with_current_tables(text, METAFORMER) == text, (
            f"a generated table in {name} does not match experiments/results; run experiments/update_tables.py {name}")
        changed = text.replace("| 3 | ", "| 4 | ", 1)
        assert changed != text and update_tables.with_current_tables(changed, METAFORMER) == text, "a changed table is not found"
        print(f"{name}: {len(found)} tables are current")


if __name__ == "__main__":
    main()
