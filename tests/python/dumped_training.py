"""The training that dump_training writes, and whether a reference follows it."""
import json
import random
import subprocess
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

# Small, but with everything on: several heads and blocks, warm-up and cosine, decay, a clip that bites in some steps.
OVERRIDES = ["model.layers=2", "model.heads=2", "model.width=32", "model.context=32", "train.steps=50",
             "train.batch_size=8", "train.learning_rate=1e-3", "train.schedule.warmup_steps=10", "train.clip=0.8"]
TOLERANCE = 1e-4  # of every step's loss
WEIGHT_TOLERANCE = 1e-5  # of the final weights as one vector, relative
LEARNT = 0.2      # the loss must fall at least so far, or the curves would agree about nothing


def text():
    return " ".join(random.Random(1).choices("to be or not to be that is the question".split(), k=2000))


def dump(dump_training, corpus, overrides):
    """The config, the initial weights by name (float64), and what our training made of them."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([dump_training, folder, *OVERRIDES, f"data.path='{corpus}'", *overrides], check=True)
        config = json.loads((Path(folder) / "config.json").read_text())
        initial = load_file(Path(folder) / "model.safetensors")
        ours = load_file(Path(folder) / "training.safetensors")
    return config, {name: weight.double() for name, weight in initial.items()}, ours


def agreement(ours, losses, final):
    """Asserts that our training has these losses and final weights; says how near they are."""
    worst = (ours["losses"] - losses).abs().max().item()
    fell = (losses[0] - losses[-1]).item()
    flat = torch.cat([weight.detach().flatten() for weight in final.values()])
    our_flat = torch.cat([ours["final." + name].double().flatten() for name in final])
    weight_error = ((our_flat - flat).norm() / flat.norm()).item()
    found = (f"loss {losses[0]:.4f} to {losses[-1]:.4f}, largest difference {worst:.1e}; "
             f"final weights differ by {weight_error:.1e}")
    assert worst <= TOLERANCE and weight_error <= WEIGHT_TOLERANCE and fell > LEARNT, found
    return found
