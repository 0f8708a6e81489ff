#!/usr/bin/env python3
"""Prints the registers and spills of every CUDA kernel, as reported by ptxas, and the number of instructions of a tile.

  scripts/kernel_resources.py                 sm_80, sm_90 and sm_120
  scripts/kernel_resources.py --arch 90 --element bf16

The instructions of a tile are those on the shortest path through the kernel's main loop, the path of a tile without masks.
Needs nvcc (CUDA 13), and for the instructions cuobjdump, which Triton contains. Exit code 1 if a kernel of a head width up
to 64 spills, or one of another layer, of the loss or of the update of weights.
"""
import argparse
import concurrent.futures
import heapq
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNEL = re.compile(r"metaformer::cuda::(metric_\w+)<metaformer::cuda::(\w+), (?:\(int\))?(\d+)(?:, (?:\(bool\))?(\w+))?"
                    r"(?:, (?:\(int\))?(\d+))?>")
TRUE = ("true", "1")
NORM_KERNEL = re.compile(r"(residual_norm\w*)_kernel(?:<(?:\(int\))?(\d+), (?:\(int\))?(\d+)>)?")
LAYER_KERNEL = re.compile(r"((?:activation|rotary|embedding)\w*)_kernel(?:<metaformer::cuda::(?:\(anonymous namespace\)::)?(\w+), (?:\(bool\))?(\w+)>)?")
STEP_KERNEL = re.compile(r"((?:cross_entropy|gradient|adam)\w*)_kernel(?:<metaformer::cuda::(\w+), (?:\(int\))?(\d+)>)?")


# Address, predicate, operation, operands. A branch may have its predicate among its operands, before its target.
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(@!?U?P\w+\s+)?([A-Z]\w*)([^;&?/]*)")
OPERAND_PREDICATE = re.compile(r"\bU?[PR]\d")
TARGET = re.compile(r"0x[0-9a-f]+(?=\s*$)")


def demangled(text):
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True).stdout


def norm_kernel_of(match):
    """(name, element, width) of a kernel for every element; the width is the largest of its rows."""
    columns = 128
    return match and (match[1], "all", columns * int(match[2] or 0) * int(match[3] or 0))


def kernel_of(match):
    """(name, element, width) of a kernel; "values": with values of their own; "256 tokens": those of a block, 32 a warp."""
    return match and (match[1].removesuffix("_kernel") + (", values" if match[4] in TRUE else "")
                      + (f", {32 * int(match[5])} tokens" if match[5] else ""), match[2].lower(), int(match[3]))


def layer_kernel_of(match):
    """The same for a kernel of a layer, which serves every element and width; with its function, if there is one for each."""
    gated = " gated" if match and match[3] in TRUE else ""
    return match and (match[1] + (f", {match[2]}{gated}" if match[2] else ""), "all", 0)


def step_kernel_of(match):
    """The same for a kernel of the loss or of the update, which serve every width."""
    shared = {"32": ", row of a warp", "256": ", row of a block"}
    return match and (match[1] + shared.get(match[3], ""), (match[2] or "fp32").lower(), 0)


def find_cuobjdump():
    found = shutil.which("cuobjdump")
    packages = sorted(ROOT.glob(".deps/venv/lib/python3*/site-packages/triton/backends/nvidia/bin/cuobjdump"))
    return found or (str(packages[0]) if packages else None)


def compile_source(nvcc, cuobjdump, source, arch):
    """ptxas's report and the machine code of a source, demangled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        command = [nvcc, "-std=c++20", "-O3", "-Xptxas", "-v", f"-gencode=arch=compute_{arch},code=sm_{arch}",
                   f"-I{ROOT}/src/cuda/ptx", f"-I{ROOT}/src", "-cubin", "-o", cubin.name, str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{source}: {done.stderr}")
        code = ""
        if cuobjdump:
            code = subprocess.run([cuobjdump, "-sass", cubin.name], capture_output=True, text=True, check=True).stdout
        return demangled(done.stderr), demangled(code)


def shortest_way(instructions, head, tail):
    """The smallest number of instructions from address `head` to `tail`, by Dijkstra."""
    following = dict(zip(instructions, list(instructions)[1:]))
    done, left = set(), [(1, head)]
    while left:
        count, at = heapq.heappop(left)
        if at == tail:
            return count
        if at in done or at not in instructions:
            continue
        done.add(at)
        predicate, operation, target = instructions[at]
        if operation == "BRA" and target is not None and head <= target <= tail:
            heapq.heappush(left, (count + 1, target))
        if not (operation in ("BRA", "EXIT") and not predicate) and at in following:
            heapq.heappush(left, (count + 1, following[at]))
    return 0


def instructions_of_tiles(code):
    """{kernel: instructions of a tile}, for the innermost loop with the most matrix products."""
    found = {}
    for function in code.split("Function : ")[1:]:
        name = KERNEL.search(function.split("\n", 1)[0])
        if not name:
            continue
        instructions = {}
        for line in function.splitlines():
            if match := INSTRUCTION.search(line):
                target = TARGET.search(match[4])
                instructions[int(match[1], 16)] = (match[2] or OPERAND_PREDICATE.search(match[4]), match[3],
                                                   int(target[0], 16) if target else None)
        products = [at for at, (_, operation, _) in instructions.items() if operation == "HMMA"]
        loops = [(target, at) for at, (_, operation, target) in instructions.items()
                 if operation == "BRA" and target is not None and target <= at]
        inside = {loop: sum(loop[0] <= at <= loop[1] for at in products) for loop in loops}
        if inside and max(inside.values()) > 0:
            head, tail = max(inside, key=lambda loop: (inside[loop], loop[0] - loop[1]))
            found[kernel_of(name)] = shortest_way(instructions, head, tail)
    return found


def kernels(report, arch):
    """(name, element, width, arch, registers, bytes spilled) of each kernel in ptxas's report."""
    name, spilled = None, 0
    for line in report.splitlines():
        if "Compiling entry function" in line:
            name = (kernel_of(KERNEL.search(line)) or norm_kernel_of(NORM_KERNEL.search(line))
                    or layer_kernel_of(LAYER_KERNEL.search(line)) or step_kernel_of(STEP_KERNEL.search(line)))
        if match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match[1]) + int(match[2])
        if name and (match := re.search(r"Used (\d+) registers", line)):
            yield *name, arch, int(match[1]), spilled


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, action="append", help="compute capability without its dot; may be repeated")
    parser.add_argument("--element", choices=["bf16", "fp16", "tf32", "fp32"], help="default: all")
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        sys.exit("nvcc is needed")
    cuobjdump = find_cuobjdump()
    sources = sorted((ROOT / "src/cuda").glob(f"metric_{arguments.element or '*[0-9]'}.cu"))
    if arguments.element in (None, "bf16", "fp16"):
        sources += [ROOT / f"src/cuda/metric_{name}_launch.cu" for name in ("projection", "short")]
    if arguments.element is None:
        sources += [ROOT / f"src/cuda/{name}.cu" for name in ("residual_norm", "activation", "rotary", "embedding", "adam",
                                                             "cross_entropy", "gradient_norm")]
    work = [(source, arch) for source in sources
            for arch in arguments.arch or (80, 90, 120)]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(lambda job: compile_source(nvcc, cuobjdump, *job), work))
    seconds = time.monotonic() - start
    rows, tiles = set(), {}
    for (report, code), (_, arch) in zip(compiled, work):
        rows |= set(kernels(report, arch))
        tiles |= {(*name, arch): count for name, count in instructions_of_tiles(code).items()}
    rows = sorted(rows)
    print(f"{'kernel':41} {'element':8} {'width':>5} {'arch':>6} {'registers':>9} {'spilled':>7} {'tile':>6}")
    for kernel, element, width, arch, registers, spilled in rows:
        print(f"{kernel:41} {element:8} {width:5} {'sm_' + str(arch):>6} {registers:9} {spilled:7} "
              f"{tiles.get((kernel, element, width, arch), ''):>6}")
    print(f"{len(work)} compilations in {seconds:.0f} s on {os.cpu_count()} cores")
    sys.exit(any(spilled > 0 and (width <= 64 or element == "all") for _, element, width, _, _, spilled in rows))


if __name__ == "__main__":
    main()
