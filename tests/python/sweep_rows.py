#!/usr/bin/env python3
"""Sweeps that run at once and share a file of results lose no row of each other's; differences between configs are paired
by seed and compared under equal overrides.

  sweep_rows.py PATH/TO/experiments
"""
import multiprocessing
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import sweep  # noqa: E402

WRITERS, ROWS = 4, 25


def append_all(path, writer):
    for row in range(ROWS):
        sweep.append_row(path, {"key": f"{writer}-{row}", "seed": row})


def row(config, overrides, seed, loss):
    return {"config": config, "overrides": overrides, "seed": str(seed), "val_loss": str(loss)}


def check_differences():
    rows = [row("a", "", 1, 1), row("a", "", 2, 2), row("a", "", 3, 6), row("a", "x=1", 1, 5), row("b", "x=1", 1, 4),
            row("b", "", 1, 2), row("b", "", 2, 4), row("b", "", 3, 9), row("b", "", 4, 100), row("b", "y=1", 1, 0)]
    group = [entry for entry in rows if entry["config"] == "b" and not entry["overrides"]]
    # Differences 1, 2, 3 of three seeds: 2 +- 4.3027 / sqrt(3) (Student's t, 2 degrees of freedom).
    cell = sweep.difference_cell(group, sweep.reference_of(rows, ""), sweep.validation_loss, 3)
    assert cell == "+2.000 (-0.484 to +4.484)", cell
    assert [entry["overrides"] for entry in sweep.reference_of(rows, "x=1")] == ["x=1"]
    assert {entry["overrides"] for entry in sweep.reference_of(rows, "y=1")} == {""}
    assert sweep.difference_cell(group[:1], sweep.reference_of(rows, ""), sweep.validation_loss, 3) == ""


if __name__ == "__main__":
    check_differences()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results/sweep.csv"
        processes = [multiprocessing.Process(target=append_all, args=(path, writer)) for writer in range(WRITERS)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        keys = {row["key"] for row in sweep.read_rows(path)}
        assert keys == {f"{writer}-{row}" for writer in range(WRITERS) for row in range(ROWS)}, len(keys)
        assert [entry.name for entry in path.parent.iterdir()] == ["sweep.csv"]
