#!/usr/bin/env python3
"""Measures rates of a device, for comparison with the times of a training step; prints one line of JSON for each.

  gpu_probes.py --device cuda           on a CUDA device by replays of a graph, between two events
  gpu_probes.py --device cpu --small    the same measurements, only as a test

  product_bf16, product_tf32    TFLOP/s of one square matrix product
  copy                          GB/s read and written by a copy that no cache holds
  copy_l2                       GB/s read and written by copies within the L2 cache
  graph_node                    microseconds a node of a graph whose kernels do almost nothing
"""
import argparse
import json
import statistics
import time

import torch


def recorded(work):
    """The work as a graph, after it has run on a side stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def milliseconds(work, device, rounds=5):
    """The median time of the work."""
    if device.type == "cuda":
        work = recorded(work)
    work()
    times = []
    for _ in range(rounds):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start = time.perf_counter()
            work()
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def product(device, side, dtype, precision):
    torch.set_float32_matmul_precision(precision)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    repeats = 4

    def work():
        for _ in range(repeats):
            torch.mm(a, b, out=out)

    return 2 * side**3 * repeats / milliseconds(work, device) * 1e-9


def copies(device, size, repeats):
    """GB/s of copies of `size` bytes, read and written."""
    source, target = (torch.ones(size // 4, device=device) for _ in range(2))

    def work():
        for _ in range(repeats):
            target.copy_(source)

    return 2 * size * repeats / milliseconds(work, device) * 1e-6


def node(device, count):
    x = torch.zeros(32, device=device)

    def work():
        for _ in range(count):
            x.add_(1)

    return milliseconds(work, device) / count * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    a = parser.parse_args()
    device = torch.device(a.device)
    side, large, cached, count = (64, 1 << 12, 1 << 10, 10) if a.small else (8192, 1 << 30, 1 << 23, 1000)
    probes = {"product_bf16": (lambda: product(device, side, torch.bfloat16, "highest"), "TFLOP/s"),
              "product_tf32": (lambda: product(device, side, torch.float32, "high"), "TFLOP/s"),
              "copy": (lambda: copies(device, large, 4), "GB/s"),
              "copy_l2": (lambda: copies(device, cached, 200), "GB/s"),
              "graph_node": (lambda: node(device, count), "us")}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    for probe, (measure, unit) in probes.items():
        print(json.dumps({"probe": probe, "value": measure(), "unit": unit, "device": name}), flush=True)


if __name__ == "__main__":
    main()
