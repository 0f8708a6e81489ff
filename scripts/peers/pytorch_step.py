#!/usr/bin/env python3
"""The training step of a GPT in plain PyTorch, as in nanoGPT, for comparison with `metaformer bench step`.

  pytorch_step.py --layers 4 --heads 4 --width 128 --context 64 --batch 12 --precision fp32 --steps 30
  pytorch_step.py --device cuda --precision bf16 --compile --graph --dropout 0.2 --rounds 3

The same work as one of our steps: a random batch of a tokenized text, forward, backward, clipping to 1, AdamW with decay
on matrices. Prints one line of JSON: milliseconds a step (the median of --rounds of --steps), the rounds, the loss, memory.

  --batches device   the tokens of the text are on the device, which draws and cuts the batches (default)
  --batches pinned   as nanoGPT: the host cuts a batch while the device computes, and copies it from pinned memory
  --compile          torch.compile(mode="max-autotune-no-cudagraphs")
  --graph            the whole step, with its batch and its update, replayed as one CUDA graph
  --precision        bf16 is autocast and tf32 allows tf32 products, both as in nanoGPT; fp32 has neither
  --text FILE        its characters are the tokens; without it tokens are random numbers below --vocabulary
  --row=OPTIONS      may be repeated: measures these options, beside the others, as a row with a line of its own; a row that
                     fails has the error in its line, and the others are still measured (exit code 1)

The host reads no result before the end of a round. Needs only torch and numpy.
"""
import argparse
import copy
import gc
import json
import math
import resource
import shlex
import statistics
import sys
import time
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.dropout = a.heads, a.dropout
        self.attention_norm, self.hidden_norm = (nn.LayerNorm(a.width, bias=False) for _ in range(2))
        self.query_key_value = nn.Linear(a.width, 3 * a.width, bias=False)
        self.output = nn.Linear(a.width, a.width, bias=False)
        self.up = nn.Linear(a.width, 4 * a.width, bias=False)
        self.down = nn.Linear(4 * a.width, a.width, bias=False)

    def attend(self, x_bcd):
        parts = self.query_key_value(x_bcd).chunk(3, dim=2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def drop(self, x_bcd):
        return functional.dropout(x_bcd, self.dropout, self.training)

    def forward(self, x_bcd):
        x_bcd = x_bcd + self.drop(self.attend(self.attention_norm(x_bcd)))
        return x_bcd + self.drop(self.down(functional.gelu(self.up(self.hidden_norm(x_bcd)))))


class Gpt(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.dropout = a.dropout
        self.token_table = nn.Embedding(a.vocabulary, a.width)
        self.position_table = nn.Embedding(a.context, a.width)
        self.blocks = nn.Sequential(*(Block(a) for _ in range(a.layers)))
        self.norm = nn.LayerNorm(a.width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_branch = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * a.layers) if ends_branch else 0.02)

    def forward(self, ids_bc, targets_bc):
        x_bcd = self.token_table(ids_bc) + self.position_table.weight
        x_bcd = functional.dropout(x_bcd, self.dropout, self.training)
        logits = functional.linear(self.norm(self.blocks(x_bcd)), self.token_table.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets_bc.flatten())


def read_tokens(a):
    if a.text is None:
        return numpy.random.default_rng(1).integers(0, a.vocabulary, 1_000_000).astype(numpy.uint16)
    text = Path(a.text).read_text(encoding="utf-8")
    ids = {character: i for i, character in enumerate(sorted(set(text)))}
    if len(ids) > a.vocabulary:
        fail(f"{a.text} has {len(ids)} characters, more than --vocabulary {a.vocabulary}")
    return numpy.array([ids[character] for character in text], dtype=numpy.uint16)


class DeviceBatches:
    """Batches of tokens that are all on the device. Nothing waits for the host, so that a graph can record it."""

    def __init__(self, tokens, a, device):
        self.tokens = torch.from_numpy(tokens.astype(numpy.int64)).to(device)
        self.window = torch.arange(a.context + 1, device=device)
        self.starts = (len(tokens) - a.context, (a.batch, 1))
        self.device = device

    def next(self):
        ids = self.tokens[torch.randint(*self.starts, device=self.device) + self.window]
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def prefetch(self):
        pass


class PinnedBatches:
    """Batches as nanoGPT draws them: cut on the host, copied without waiting, the next one while the device computes."""

    def __init__(self, tokens, a, device):
        self.tokens, self.context, self.batch, self.device = tokens, a.context, a.batch, device
        self.batch_ahead = self.draw()

    def draw(self):
        starts = torch.randint(len(self.tokens) - self.context, (self.batch,))
        rows = lambda shift: [self.tokens[s + shift : s + shift + self.context].astype(numpy.int64) for s in starts]
        both = [torch.stack([torch.from_numpy(row) for row in rows(shift)]) for shift in (0, 1)]
        if self.device.type == "cuda":
            both = [part.pin_memory().to(self.device, non_blocking=True) for part in both]
        return both

    def next(self):
        return self.batch_ahead

    def prefetch(self):
        self.batch_ahead = self.draw()


def make_optimizer(model, device):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.99), fused=True, capturable=device.type == "cuda")


def compiled(model):
    return torch.compile(model, mode="max-autotune-no-cudagraphs")


def make_step(a, device):
    """A function that trains one step and returns the loss, a tensor on the device."""
    model = Gpt(a).to(device)
    optimizer = make_optimizer(model, device)
    batches = {"device": DeviceBatches, "pinned": PinnedBatches}[a.batches](read_tokens(a), a, device)
    run = compiled(model) if a.compile else model

    def step():
        ids_bc, targets_bc = batches.next()
        with torch.autocast(device.type, torch.bfloat16, enabled=a.precision == "bf16"):
            loss = run(ids_bc, targets_bc)
        batches.prefetch()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=False, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()  # a graph must not find nodes of an earlier step

    return step


def record(step, warmup):
    """The step as a CUDA graph, recorded on the stream that warmed it up."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(max(warmup, 3)):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        loss = step()

    def replay():
        graph.replay()
        return loss

    replay.step = step  # the graph reads and writes the memory of the model, the optimizer and the tokens
    return replay


def time_round(step, steps):
    start = time.perf_counter()
    for _ in range(steps):
        loss = step()
    loss = loss.item()  # waits for the device
    return (time.perf_counter() - start) / steps * 1e3, loss


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_memory(device):
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fail(message):
    print(f"pytorch_step.py: {message}", file=sys.stderr)
    sys.exit(2)


def parse_arguments(arguments=None):
    """The options, and those of each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    for name, default in [("layers", 4), ("heads", 4), ("width", 128), ("context", 64), ("batch", 12), ("vocabulary", 65),
                          ("steps", 30), ("rounds", 1), ("warmup", 10)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.0, help="of embeddings, attention weights and both branches")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--batches", choices=["device", "pinned"], default="device")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--text")
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    a = parser.parse_args(arguments)
    rows = [parser.parse_args(shlex.split(row), copy.copy(a)) for row in a.row]
    for each in rows or [a]:
        refuse(each)
    return a, rows


def refuse(a):
    if a.graph and not a.device.startswith("cuda"):
        fail(f"--graph needs a CUDA device, not {a.device}")
    if a.device.startswith("cuda") and not torch.cuda.is_available():
        fail(f"--device {a.device}: there is no CUDA device here")
    if a.graph and a.batches != "device":
        fail("--graph needs --batches device: a graph cannot draw batches on the host")


def options_of(a):
    return {"peer": "pytorch", "torch": torch.__version__, "threads": torch.get_num_threads(), "precision": a.precision,
            "compiled": a.compile, "graph": a.graph, "dropout": a.dropout, "batches": a.batches}


def measure(a):
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("highest" if a.precision == "fp32" else "high")
    device = torch.device(a.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        torch.cuda.reset_peak_memory_stats()
    step = make_step(a, device)
    if a.graph:
        step = record(step, a.warmup)
        step()
    else:
        for _ in range(a.warmup):
            step()
    wait(device)
    rounds = [time_round(step, a.steps) for _ in range(a.rounds)]
    times = [ms for ms, _ in rounds]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {**options_of(a), "device": name, "ms_per_step": statistics.median(times), "rounds_ms": times,
            "loss": rounds[-1][1], "peak_memory_bytes": peak_memory(device)}


def measure_rows(rows):
    failed = False
    for row in rows:
        try:
            result = measure(row)
        except Exception as error:
            result = {**options_of(row), "failed": str(error).split("\n")[0]}
            failed = True
        print(json.dumps(result), flush=True)
        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return failed


def main():
    a, rows = parse_arguments()
    if rows:
        sys.exit(measure_rows(rows))
    print(json.dumps(measure(a)))


if __name__ == "__main__":
    main()
