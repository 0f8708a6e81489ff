"""Two hundred training steps of our program beside plain PyTorch from the same weights over the same batches: the losses
must lie over one another. In fp32 within 5e-5 of PyTorch's eager float32. In bf16 within 2e-3 of it, or, where rounding to
bfloat16 itself leads further away, at most twice as far as PyTorch's autocast.

usage: overlay_losses.py DUMP_TRAINING [KEY=VALUE ...]
"""
import functools
import json
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
from compare_training import learning_rate

COMPARED = ("scaled_dot_product", "metric")
TOLERANCE = {"fp32": 5e-5, "bf16": 2e-3}


def text():
    """Letters of which each one makes three others likely: learnt smoothly, without a step at which all falls into place,
    where rounding would decide when."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz ,.\n"
    likely = {letter: draw.sample(letters, 3) for letter in letters}
    written = ["a"]
    for _ in range(50_000):
        written.append(draw.choice(likely[written[-1]]) if draw.random() < 0.8 else draw.choice(letters))
    return "".join(written)


def train(config, weights, ids, targets, precision):
    train_config, adamw = config["train"], config["train"]["optimizer"]
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights.values() if w.dim() >= 2], "weight_decay": adamw["weight_decay"]},
         {"params": [w for w in weights.values() if w.dim() < 2], "weight_decay": 0}],
        betas=tuple(adamw["betas"]), eps=1e-8)
    losses = []
    for step in range(train_config["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(train_config, step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = reference_model.forward(config, weights, ids[step])
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets[step].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), train_config["clip"])
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def check(dump_training, overrides, mixer, precision):
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "text.txt"
        corpus.write_text(text())
        subprocess.run([dump_training, folder, f"data.path='{corpus}'", "train.steps=200", f"train.precision={precision}",
                        f"model.mixer={MIXERS[mixer]}", *overrides], check=True)
        config = json.loads((Path(folder) / "config.json").read_text())
        initial = load_file(Path(folder) / "model.safetensors")
        ours = load_file(Path(folder) / "training.safetensors")

    def reference(of_precision):
        weights = {name: weight.clone().requires_grad_() for name, weight in initial.items()}
        return train(config, weights, ours["ids"], ours["targets"], of_precision)

    exact = reference("fp32")
    difference = (ours["losses"] - exact).abs().max().item()
    limit = TOLERANCE[precision]
    found = f"loss {exact[0]:.4f} to {exact[-1]:.4f}; largest difference {difference:.1e}"
    if precision == "bf16":
        of_rounding = (reference("bf16") - exact).abs().max().item()
        found += f"; of PyTorch's autocast {of_rounding:.1e}"
        limit = max(limit, 2 * of_rounding)
    assert exact[0] - exact[-1] > 0.5, f"{found}: nothing was learnt, so the curves agree about nothing"
    assert difference <= limit, f"{found}: more than {limit:.1e}"
    return found


def main():
    dump_training, *overrides = sys.argv[1:]
    run_cases({f"{mixer} {precision}": functools.partial(check, dump_training, overrides, mixer, precision)
               for mixer in COMPARED for precision in TOLERANCE})


if __name__ == "__main__":
    main()
