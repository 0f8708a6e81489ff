#!/usr/bin/env python3
"""A layer of Mamba-2 or of Qwen3-Next's gated delta net as the library `transformers` computes it without Triton, forward and
backward, for comparison with `metaformer bench attention`, which has the same layer (tests/python/compare_transformers.py).

  transformers_layer.py mamba2 --batch 4 --heads 4 --head-width 32 --context 256 --rounds 5 [--compile]

Prints one line of JSON: milliseconds a step, the median of --rounds. --chunk: the tokens of a chunk of Mamba-2; 16 were the fastest
on a CPU (the library's default is 256). Needs torch and transformers.
"""
import argparse
import json
import statistics
import time

import torch
from transformers import Mamba2Config, Qwen3NextConfig
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet


def mamba2(a):
    return Mamba2Mixer(Mamba2Config(
        hidden_size=a.heads * a.head_width, num_heads=a.heads, head_dim=a.head_width, state_size=64, expand=1, n_groups=1, conv_kernel=4,
        chunk_size=a.chunk, use_bias=False, use_conv_bias=True), 0)


def gated_delta_net(a):
    return Qwen3NextGatedDeltaNet(Qwen3NextConfig(
        hidden_size=a.heads * a.head_width, linear_num_key_heads=a.heads, linear_num_value_heads=a.heads,
        linear_key_head_dim=a.head_width // 2, linear_value_head_dim=a.head_width, linear_conv_kernel_dim=4), 0)


parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
parser.add_argument("layer", choices=["mamba2", "gated_delta_net"])
for name, value in (("batch", 4), ("heads", 4), ("head-width", 32), ("context", 256), ("chunk", 16), ("rounds", 5)):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--compile", action="store_true", help="by torch.compile")
a = parser.parse_args()

torch.manual_seed(1)
layer = globals()[a.layer](a)
call = torch.compile(layer) if a.compile else layer
x = torch.randn(a.batch, a.context, a.heads * a.head_width, requires_grad=True)
dy = torch.randn(a.batch, a.context, a.heads * a.head_width)
times = []
for number in range(a.rounds + 2):  # two warm up
    start = time.perf_counter()
    call(x).backward(dy)
    times.append(1e3 * (time.perf_counter() - start))
print(json.dumps({"ms_per_step": statistics.median(times[2:]), "rounds_ms": times[2:]}))
