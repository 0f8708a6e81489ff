#!/usr/bin/env python3
"""The training step of a GPT in plain PyTorch, as in nanoGPT, for comparison with `metaformer bench step`.

  pytorch_step.py --layers 4 --heads 4 --width 128 --context 64 --batch 12 --precision fp32 --steps 30

The same work as one of our steps: a random batch of a tokenized text, forward, backward, clipping to 1, AdamW with decay
on matrices. One line of JSON: median milliseconds over --rounds of --steps, memory, and the loss. bf16 is autocast, as in
nanoGPT; --compile uses torch.compile. Needs torch and numpy alone; scripts/bench_against_pytorch.sh runs it.
"""
import argparse
import json
import resource
import statistics
import time

import numpy
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.hidden_norm = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def attend(self, x_bcd):
        parts = self.query_key_value(x_bcd).chunk(3, dim=2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def forward(self, x_bcd):
        x_bcd = x_bcd + self.attend(self.attention_norm(x_bcd))
        return x_bcd + self.down(functional.gelu(self.up(self.hidden_norm(x_bcd))))


class Gpt(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.token_table = nn.Embedding(a.vocabulary, a.width)
        self.position_table = nn.Embedding(a.context, a.width)
        self.blocks = nn.Sequential(*(Block(a.width, a.heads) for _ in range(a.layers)))
        self.norm = nn.LayerNorm(a.width, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids_bc, targets_bc):
        x_bcd = self.token_table(ids_bc) + self.position_table.weight
        logits = functional.linear(self.norm(self.blocks(x_bcd)), self.token_table.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets_bc.flatten())


def draw_batch(tokens, a, device):
    starts = torch.randint(len(tokens) - a.context, (a.batch,))
    rows = [torch.from_numpy(tokens[s : s + a.context + 1].astype(numpy.int64)) for s in starts]
    batch = torch.stack(rows).to(device)
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in [("layers", 4), ("heads", 4), ("width", 128), ("context", 64), ("batch", 12), ("vocabulary", 65),
                          ("steps", 30), ("rounds", 1), ("warmup", 10)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    a = parser.parse_args()
    torch.manual_seed(1337)
    device = torch.device(a.device)
    model = Gpt(a).to(device)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.99), fused=device.type == "cuda")  # as in nanoGPT
    tokens = numpy.random.default_rng(1).integers(0, a.vocabulary, 1_000_000).astype(numpy.uint16)
    run = torch.compile(model) if a.compile else model

    def step():
        ids_bc, targets_bc = draw_batch(tokens, a, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=a.precision == "bf16"):
            loss = run(ids_bc, targets_bc)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def timed():
        start = time.perf_counter()
        for _ in range(a.steps):
            loss = step()
        loss = loss.item()  # waits for the device
        return (time.perf_counter() - start) / a.steps * 1e3, loss

    for _ in range(a.warmup):
        step().item()
    rounds = [timed() for _ in range(a.rounds)]
    print(json.dumps({"peer": "pytorch", "torch": torch.__version__, "threads": torch.get_num_threads(),
                      "precision": a.precision, "compiled": a.compile,
                      "ms_per_step": statistics.median(ms for ms, _ in rounds), "loss": rounds[-1][1],
                      "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
