#!/usr/bin/env python3
"""Estimates the scaling efficiency of data-parallel training: the throughput of n processes as a fraction of n times that of
one process, if each computes the same number of tokens per step as the single process.

  scripts/scaling_efficiency.py                                      the table of docs/long_runs.md
  scripts/scaling_efficiency.py --parameters 124 --tokens 65536 --teraflops 300 --gigabytes 12.5 300 --processes 2 8 64

A step computes for C = 6 parameters tokens / speed, two thirds of it backward. The ring sums B bytes of gradients in
R = 2 (n - 1) / n B / bandwidth + 2 (n - 1) latency (Patarasuk and Yuan 2009). All but the last bucket of 25 MB may be sent
during the backward pass, so a step takes T = C + max(R - 2 C / 3, R of the last bucket). The efficiency is C / T.

`metaformer bench step --processes N` measures C (phases forward and backward) and R (all_reduce_ms) of a config.
"""
import argparse

BUCKET_BYTES = 25 * 2**20


def ring_seconds(size, processes, bandwidth, latency):
    return 2 * (processes - 1) / processes * size / bandwidth + 2 * (processes - 1) * latency


def efficiency(compute, size, processes, bandwidth, latency):
    """compute: seconds of a step of one process; size: bytes of its gradients; bandwidth: bytes a second."""
    ring = ring_seconds(size, processes, bandwidth, latency)
    last = ring_seconds(min(size, BUCKET_BYTES), processes, bandwidth, latency)
    return compute / (compute + max(ring - 2 / 3 * compute, last))


def positive(text):
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=positive, nargs="+", default=[10, 124, 1300], help="millions")
    parser.add_argument("--tokens", type=positive, default=32768, help="tokens per step and process")
    parser.add_argument("--teraflops", type=positive, default=200, help="teraflops per second of a process, as measured by bench step")
    parser.add_argument("--gigabytes", type=positive, nargs="+", default=[1.25, 12.5, 300],
                        help="bandwidth per second: 1.25 for 10 Gb Ethernet, 12.5 for 100 Gb, 300 for NVLink")
    parser.add_argument("--microseconds", type=positive, default=20, help="latency of a message")
    parser.add_argument("--processes", type=lambda text: int(positive(text)), nargs="+", default=[2, 8, 64])
    a = parser.parse_args()
    print("| parameters | compute of a step | bandwidth | " + " | ".join(f"{n} GPUs" for n in a.processes) + " |")
    print("|---:|---:|---:|" + "---:|" * len(a.processes))
    for millions in a.parameters:
        compute = 6 * millions * 1e6 * a.tokens / (a.teraflops * 1e12)
        for gigabytes in a.gigabytes:
            shares = [efficiency(compute, 4e6 * millions, n, gigabytes * 1e9, a.microseconds * 1e-6) for n in a.processes]
            print(f"| {millions:g} M | {1e3 * compute:,.0f} ms | {gigabytes:g} GB/s | " +
                  " | ".join(f"{share:.0%}" for share in shares) + " |")


if __name__ == "__main__":
    main()
