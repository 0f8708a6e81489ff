#!/usr/bin/env python3
"""Registers, spills and shared memory of every CUDA kernel, as ptxas tells them, and how long compiling takes.

  scripts/kernel_resources.py                 sm_80 and sm_90
  scripts/kernel_resources.py --arch 80

Needs nvcc (CUDA 13). Exit code 1 when a kernel of a head width up to 64 spills.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNEL = re.compile(r"metaformer::cuda::(metric_\w+)<metaformer::cuda::(\w+), \(?i?n?t?\)?(\d+)>")


def compile_source(nvcc, source, arch):
    command = [nvcc, "-std=c++20", "-O3", "-Xptxas", "-v", f"-gencode=arch=compute_{arch},code=sm_{arch}",
               f"-I{ROOT}/src/cuda/ptx", f"-I{ROOT}/src", "-cubin", "-o", "/dev/null", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{source}: {done.stderr}")
    return subprocess.run(["c++filt"], input=done.stderr, capture_output=True, text=True).stdout


def kernels(report, arch):
    """(kernel, element, width, arch, registers, bytes spilled) of each in ptxas's report."""
    name, spilled = None, 0
    for line in report.splitlines():
        if "Compiling entry function" in line:
            match = KERNEL.search(line)
            name = match.groups() if match else None
        if match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match[1]) + int(match[2])
        if name and (match := re.search(r"Used (\d+) registers", line)):
            yield name[0], name[1].lower(), int(name[2]), arch, int(match[1]), spilled


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, action="append", help="compute capability without its dot; may be repeated")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        sys.exit("nvcc is needed")
    work = [(source, arch) for source in sorted((ROOT / "src/cuda").glob("metric_*.cu"))
            for arch in arguments.arch or (80, 90)]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(lambda job: list(kernels(compile_source(nvcc, *job), job[1])), work))
    seconds = time.monotonic() - start
    rows = sorted(set(row for report in reports for row in report))
    print(f"{'kernel':24} {'element':8} {'width':>5} {'arch':>6} {'registers':>9} {'spilled':>7}")
    for kernel, element, width, arch, registers, spilled in rows:
        print(f"{kernel:24} {element:8} {width:5} {'sm_' + str(arch):>6} {registers:9} {spilled:7}")
    print(f"{len(work)} compilations in {seconds:.0f} s on {os.cpu_count()} cores")
    sys.exit(any(spilled > 0 and width <= 64 for _, _, width, _, _, spilled in rows))


if __name__ == "__main__":
    main()
