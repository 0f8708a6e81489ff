"""Fifty training steps of our program against reference_model.py under torch.optim.AdamW, from the initial weights and
over the batches that dump_training writes: every mixer, pre- and post-norm. Ours trains in float32, the reference in
float64.

usage: compare_training.py DUMP_TRAINING
"""
import functools
import math
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

import reference_model
from cases import run_cases
from compare_model import MIXERS
from dumped_training import agreement, dump, text

HASHED = ("lsh_chunks", "lsh_buckets")  # in training afresh in every pass, which the reference does not know


def learning_rate(train, step):
    peak, floor, warmup = train["learning_rate"], train["schedule"]["floor"], train["schedule"]["warmup_steps"]
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = (step - warmup) / (train["steps"] - warmup)
    return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2


def train_reference(config, weights, ids, targets):
    """Losses and gradient norms (before clipping) by step; `weights` are trained in place."""
    train, adamw = config["train"], config["train"]["optimizer"]
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights.values() if w.dim() >= 2], "weight_decay": adamw["weight_decay"]},
         {"params": [w for w in weights.values() if w.dim() < 2], "weight_decay": 0}],
        betas=tuple(adamw["betas"]), eps=1e-8)
    losses, norms = [], []
    for step in range(train["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(train, step)
        optimizer.zero_grad()
        logits = reference_model.forward(config, weights, ids[step])
        loss = F.cross_entropy(logits.flatten(0, 1), targets[step].flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), train["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), norms


def compare(dump_training, corpus, mixer, norm):
    config, initial, ours = dump(dump_training, corpus, [f"model.mixer={MIXERS[mixer]}", f"model.norm.position={norm}"])
    weights = {name: weight.requires_grad_() for name, weight in initial.items()}
    losses, norms = train_reference(config, weights, ours["ids"], ours["targets"])
    assert max(norms) > config["train"]["clip"], "no step was clipped"
    return agreement(ours, losses, weights)


def main():
    [dump_training] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "text.txt"
        corpus.write_text(text())
        run_cases({f"{mixer} {norm}-norm": functools.partial(compare, dump_training, corpus, mixer, norm)
                   for mixer in MIXERS if mixer not in HASHED for norm in ("pre", "post")})


if __name__ == "__main__":
    main()
