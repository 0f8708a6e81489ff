#!/usr/bin/env python3
"""The generated tables of README.md and docs/results.md are those that sweep.py makes from experiments/results.

  documented_tables.py PATH/TO/experiments
"""
import sys
from pathlib import Path

experiments = Path(sys.argv[1])
sys.path.insert(0, str(experiments))
import sweep  # noqa: E402

EXPECTED = {"README.md": {"shakespeare_cpu"},
            "docs/results.md": {"shakespeare_cpu", "shakespeare_score_std", "shakespeare_subword", "shakespeare_word", "imdb",
                                "imdb_best", "sorter", "sorter_hard"}}


def main():
    for name, sweeps in EXPECTED.items():
        text = (experiments.parent / name).read_text()
        found = {match[2] for match in sweep.GENERATED_TABLE.finditer(text)}
        assert found == sweeps, f"{name} has the generated tables {sorted(found)}, not {sorted(sweeps)}"
        assert sweep.with_current_tables(text) == text, (
            f"a generated table in {name} does not match experiments/results; rewrite it with "
            f"experiments/sweep.py all --table --update {name}")
        changed = text.replace("| 3 | ", "| 4 | ", 1)
        assert changed != text and sweep.with_current_tables(changed) == text, "a changed table is not found"
        print(f"{name}: {len(found)} tables are current")


if __name__ == "__main__":
    main()
