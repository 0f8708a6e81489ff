"""Fifty training steps with every optimiser and schedule of our program against torch.optim, from the initial weights
and over the batches that dump_training writes. Ours trains in float32, the reference in float64.

usage: compare_optimizers.py DUMP_TRAINING
"""
import functools
import math
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F

import reference_model
from cases import run_cases
from dumped_training import agreement, dump, text

OPTIMIZERS = {
    "adamw": "{kind: adamw, epsilon: 1e-6, embedding_weight_decay: 0.3}",
    "adam": "{kind: adam, weight_decay: 0.01}",
    "sgd": "{kind: sgd}",
    "sgd with momentum": "{kind: sgd, momentum: 0.9, weight_decay: 0.01}",
    "adagrad": "{kind: adagrad}",
    "adagrad with decay": "{kind: adagrad, epsilon: 1e-3, weight_decay: 0.01}",
    "muon": "{kind: muon}",
    "muon, other keys": "{kind: muon, momentum: 0.8, iterations: 4, weight_decay: 0.3}",
}
# At larger rates training with momentum is unstable, and rounding alone changes its course.
SGD_RATE = ["train.learning_rate=0.1", "train.schedule.floor=0.03"]
SCHEDULES = {
    "constant": ("{kind: constant, warmup_steps: 10}", 1e-3),
    "inverse_sqrt": ("{kind: inverse_sqrt, warmup_steps: 10}", 1e-3),
    "noam": ("{kind: noam, warmup_steps: 10}", 0.02),
    "trapezoid": ("{kind: trapezoid, warmup_steps: 10, decay_steps: 20, floor: 1e-4}", 1e-3),
    "linear": ("{kind: linear, warmup_steps: 10, floor: 1e-4}", 1e-3),
}
# The matrices that Muon orthogonalises, with how many are stacked in each: the ends of their names.
HIDDEN = {"mixer.query_key_value.weight": 3, "mixer.projection.weight": 1, "mixer.output.weight": 1, "mixer.form": 2,
          "feed_forward.up.weight": 1, "feed_forward.down.weight": 1}
EMBEDDINGS = ("token_embedding.weight", "position_embedding.weight")


def learning_rate(config, step):
    train, schedule = config["train"], config["train"]["schedule"]
    peak, warmup, kind = train["learning_rate"], schedule["warmup_steps"], schedule["kind"]
    if kind == "noam":
        return peak * config["model"]["width"] ** -0.5 * min((step + 1) ** -0.5, (step + 1) * warmup ** -1.5)
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if kind == "constant":
        return peak
    if kind == "inverse_sqrt":
        return peak * math.sqrt(warmup / step)
    last = train["steps"] - 1 if kind == "trapezoid" else train["steps"]
    first = last - schedule["decay_steps"] if kind == "trapezoid" else warmup
    progress = max(0, (step - first) / (last - first))
    height = (1 + math.cos(math.pi * progress)) / 2 if kind == "cosine" else 1 - progress
    return schedule["floor"] + (peak - schedule["floor"]) * height


def split(weights, is_split):
    """Leaves by name and number, and a function that puts the named weights together again."""
    leaves = {}
    for name, weight in weights.items():
        count = next((n for end, n in HIDDEN.items() if is_split and name.endswith(end)), 0)
        parts = weight.detach().flatten(0, -2).chunk(count) if count else [weight.detach()]
        leaves[name] = [part.clone().requires_grad_() for part in parts]

    def join():
        return {name: torch.cat(parts).view(weights[name].shape) for name, parts in leaves.items()}
    return leaves, join


def make_optimizers(options, leaves):
    """As torch.optim has them."""
    kind, decay = options["kind"], options["weight_decay"]
    decays = {"embeddings": decay if options["embedding_weight_decay"] is None else options["embedding_weight_decay"],
              "matrices": decay, "none": 0}
    groups, matrices = {sort: [] for sort in decays}, []
    for name, parts in leaves.items():
        sort = "embeddings" if name.endswith(EMBEDDINGS) else "matrices" if parts[0].dim() >= 2 else "none"
        (matrices if kind == "muon" and name.endswith(tuple(HIDDEN)) else groups[sort]).extend(parts)
    rest = [{"params": params, "weight_decay": decays[sort]} for sort, params in groups.items()]
    if kind == "sgd":
        return [torch.optim.SGD(rest, lr=0, momentum=options["momentum"])]
    if kind == "adagrad":
        return [torch.optim.Adagrad(rest, lr=0, eps=options["epsilon"])]
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    optimizers = [make(rest, betas=tuple(options["betas"]), eps=options["epsilon"])]
    if kind == "muon":
        optimizers.append(torch.optim.Muon(matrices, weight_decay=decay, momentum=options["momentum"],
                                           ns_steps=options["iterations"], adjust_lr_fn="match_rms_adamw"))
    return optimizers


# torch.optim.Muon rounds to bfloat16 before it orthogonalises; here it stays in float64.
@mock.patch.object(torch.Tensor, "bfloat16", lambda tensor: tensor)
def train_reference(config, weights, ids, targets):
    """Losses by step and final weights."""
    leaves, join = split(weights, config["train"]["optimizer"]["kind"] == "muon")
    optimizers = make_optimizers(config["train"]["optimizer"], leaves)
    every_leaf = [part for parts in leaves.values() for part in parts]
    losses = []
    for step in range(config["train"]["steps"]):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(config, step)
        for leaf in every_leaf:
            leaf.grad = None
        loss = F.cross_entropy(reference_model.forward(config, join(), ids[step]).flatten(0, 1), targets[step].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(every_leaf, config["train"]["clip"])
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), join()


def compare(dump_training, corpus, overrides):
    config, initial, ours = dump(dump_training, corpus, overrides)
    losses, final = train_reference(config, initial, ours["ids"], ours["targets"])
    return agreement(ours, losses, final)


def main():
    [dump_training] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "text.txt"
        corpus.write_text(text())
        cases = {}
        for name, optimizer in OPTIMIZERS.items():
            rate = SGD_RATE if name.startswith("sgd") else []
            for mixer in ("scaled_dot_product", "quadratic") if name.startswith("muon") else ("scaled_dot_product",):
                cases[f"{name}, {mixer}"] = [f"train.optimizer={optimizer}", f"model.mixer={mixer}", *rate]
        for name, (schedule, rate) in SCHEDULES.items():
            cases[name] = [f"train.schedule={schedule}", f"train.learning_rate={rate}"]
        run_cases({name: functools.partial(compare, dump_training, corpus, overrides)
                   for name, overrides in cases.items()})


if __name__ == "__main__":
    main()
