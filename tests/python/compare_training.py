"""Fifty training steps of our program against reference_model.py under torch.optim.AdamW, from the initial weights and
over the batches that dump_training writes: every mixer, pre- and post-norm. Ours trains in float32, the reference in
float64.

usage: compare_training.py DUMP_TRAINING
"""
import functools
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import reference_model
from cases import run_cases
from compare_model import MIXERS

# Small, but with everything on: several heads and blocks, warm-up and cosine, decay, a clip that bites in some steps.
OVERRIDES = ["model.layers=2", "model.heads=2", "model.width=32", "model.context=32", "train.steps=50",
             "train.batch_size=8", "train.learning_rate=1e-3", "train.schedule.warmup_steps=10", "train.clip=0.8"]
TOLERANCE = 1e-4  # of every step's loss
WEIGHT_TOLERANCE = 1e-5  # of the final weights as one vector, relative
LEARNT = 0.2      # the loss must fall at least so far, or the curves would agree about nothing


def text():
    return " ".join(random.Random(1).choices("to be or not to be that is the question".split(), k=2000))


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
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([dump_training, folder, *OVERRIDES, f"data.path='{corpus}'", f"model.mixer={MIXERS[mixer]}",
                        f"model.norm.position={norm}"], check=True)
        config = json.loads((Path(folder) / "config.json").read_text())
        initial = load_file(Path(folder) / "model.safetensors")
        ours = load_file(Path(folder) / "training.safetensors")
    weights = {name: weight.double().requires_grad_() for name, weight in initial.items()}
    losses, norms = train_reference(config, weights, ours["ids"], ours["targets"])
    assert max(norms) > config["train"]["clip"], "no step was clipped"
    worst = (ours["losses"] - losses).abs().max().item()
    fell = (losses[0] - losses[-1]).item()
    final = torch.cat([weight.detach().flatten() for weight in weights.values()])
    our_final = torch.cat([ours["final." + name].double().flatten() for name in weights])
    weight_error = ((our_final - final).norm() / final.norm()).item()
    found = (f"loss {losses[0]:.4f} to {losses[-1]:.4f}, largest difference {worst:.1e}; "
             f"final weights differ by {weight_error:.1e}")
    assert worst <= TOLERANCE and weight_error <= WEIGHT_TOLERANCE and fell > LEARNT, found
    return found


def main():
    [dump_training] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "text.txt"
        corpus.write_text(text())
        run_cases({f"{mixer} {norm}-norm": functools.partial(compare, dump_training, corpus, mixer, norm)
                   for mixer in MIXERS for norm in ("pre", "post")})


if __name__ == "__main__":
    main()
