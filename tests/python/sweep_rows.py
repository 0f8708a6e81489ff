#!/usr/bin/env python3
"""Sweeps that run at once and share a file of results lose no row of each other's.

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


if __name__ == "__main__":
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
