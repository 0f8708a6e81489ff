"""Training steps of our program against torch.optim with reference_model.py, with the initial weights and the batches that
dump_model writes.

  mixers       fifty steps of AdamW with every mixer, pre- and post-norm; ours in float32, the reference in float64
  optimizers   the same with every optimiser
  overlay      two hundred steps in fp32 and bf16 against plain PyTorch in eager float32: losses may differ by 5e-5 in fp32, and
               in bf16 by 2e-3 or, if that is more, by twice the difference of PyTorch's autocast

usage: compare_training.py DUMP_MODEL mixers|optimizers|overlay [KEY=VALUE ...]
"""
import functools
import json
import math
import random
import sys
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import reference_model
from common import in_folder, run, run_cases
from compare_model import MIXERS

# Small, but with everything: several heads and blocks, warm-up and cosine, decay, and clipping in some steps.
FIFTY = ["model.layers=2", "model.heads=2", "model.width=32", "model.context=32", "train.steps=50",
         "train.batch_size=8", "train.learning_rate=1e-3", "train.schedule.warmup_steps=10", "train.clip=0.8"]
# After 50 steps in float32 their weights differ by 5e-5 and 6e-4: Adam changes a weight whose gradient is near 0 by the sign of its
# rounding error, which may not be the only cause. compare_model.py compares their gradients, also in float64.
NEAR_ZERO = ("gated_delta_net", "rwkv7")
TOLERANCE = 1e-4  # of every step's loss
WEIGHT_TOLERANCE = 1e-5  # of the final weights as one vector, relative
LEARNT = 0.2      # the loss must fall at least by this, otherwise equal losses would show nothing
OVERLAY_TOLERANCE = {"fp32": 5e-5, "bf16": 2e-3}
# Filters are three sines of 14 times a sum: after 50 steps losses differ by up to 5e-3, though gradients agree in compare_model.py.
SENSITIVE = ("hyena", "hyena_3")
FROZEN = ("random", "random_own")  # the reference would train their tables
TWO_SIDED = ("fourier",)  # no next token can be predicted with it
HASHED = ("lsh_chunks", "lsh_buckets")  # hashes are drawn in every training pass, but not in the reference

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
# {end of the name of a parameter that Muon orthogonalises: number of matrices that are stacked in it}
HIDDEN = {"mixer.query_key_value.weight": 3, "mixer.projection.weight": 1, "mixer.output.weight": 1, "mixer.form": 2,
          "feed_forward.up.weight": 1, "feed_forward.down.weight": 1}
EMBEDDINGS = ("token_embedding.weight", "position_embedding.weight")


def learning_rate(config, step):
    """The cosine schedule; tests/train/test_learning_rates.cpp compares all schedules with their formulas."""
    train, schedule = config["train"], config["train"]["schedule"]
    peak, warmup = train["learning_rate"], schedule["warmup_steps"]
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = (step - warmup) / (train["steps"] - warmup)
    return schedule["floor"] + (peak - schedule["floor"]) * (1 + math.cos(math.pi * progress)) / 2


def split(weights, is_split):
    """The leaf tensors of every named weight, and a function that joins them to named weights again."""
    leaves = {}
    for name, weight in weights.items():
        count = next((n for end, n in HIDDEN.items() if is_split and name.endswith(end)), 0)
        parts = weight.detach().flatten(0, -2).chunk(count) if count else [weight.detach()]
        leaves[name] = [part.clone().requires_grad_() for part in parts]

    def join():
        return {name: torch.cat(parts).view(weights[name].shape) if len(parts) > 1 else parts[0].view(weights[name].shape)
                for name, parts in leaves.items()}
    return leaves, join


def make_optimizers(options, leaves):
    """The optimisers of torch.optim."""
    kind, decay = options["kind"], options["weight_decay"]
    decays = {"embeddings": decay if options["embedding_weight_decay"] is None else options["embedding_weight_decay"],
              "matrices": decay, "none": 0}
    groups, matrices = {sort: [] for sort in decays}, []
    for name, parts in leaves.items():
        # Hyena's network of filters does not decay, nor the tables of heads whose softmax `static` uses.
        exempt = ".mixer.filter_" in name or (name.endswith(".mixer.table") and len(parts[0]) > 1)
        sort = "embeddings" if name.endswith(EMBEDDINGS) else "matrices" if parts[0].dim() >= 2 and not exempt else "none"
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


# torch.optim.Muon rounds to bfloat16 before it orthogonalises; here it stays in the type of the weights.
@mock.patch.object(torch.Tensor, "bfloat16", lambda tensor: tensor)
def train_reference(config, weights, ids, targets, autocast=False):
    """Losses and gradient norms (before clipping) by step, and the final weights."""
    leaves, join = split(weights, config["train"]["optimizer"]["kind"] == "muon")
    optimizers = make_optimizers(config["train"]["optimizer"], leaves)
    every_leaf = [part for parts in leaves.values() for part in parts]
    losses, norms = [], []
    for step in range(config["train"]["steps"]):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(config, step)
        for leaf in every_leaf:
            leaf.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = reference_model.forward(config, join(), ids[step])
        logits = logits.float() if autocast else logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets[step].flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(every_leaf, config["train"]["clip"]).item())
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), norms, join()


def dump(folder, dump_model, text, overrides):
    """The config, the initial weights by name, and the batches and results of our training."""
    (folder / "text.txt").write_text(text)
    run(dump_model, folder, "training", f"data.path='{folder / 'text.txt'}'", *overrides)
    config = json.loads((folder / "config.json").read_text())
    return config, load_file(folder / "model.safetensors"), load_file(folder / "training.safetensors")


def check_fifty(folder, dump_model, overrides, must_clip):
    text = " ".join(random.Random(1).choices("to be or not to be that is the question".split(), k=2000))
    config, initial, ours = dump(folder, dump_model, text, [*FIFTY, *overrides])
    weights = {name: weight.double() for name, weight in initial.items()}
    losses, norms, final = train_reference(config, weights, ours["ids"], ours["targets"])
    worst = (ours["losses"] - losses).abs().max().item()
    fell = (losses[0] - losses[-1]).item()
    flat = torch.cat([weight.detach().flatten() for weight in final.values()])
    our_flat = torch.cat([ours["final." + name].double().flatten() for name in final])
    weight_error = ((our_flat - flat).norm() / flat.norm()).item()
    found = (f"loss {losses[0]:.4f} to {losses[-1]:.4f}, largest difference {worst:.1e}; "
             f"final weights differ by {weight_error:.1e}")
    assert worst <= TOLERANCE and weight_error <= WEIGHT_TOLERANCE and fell > LEARNT, found
    assert max(norms) > config["train"]["clip"] or not must_clip, "no step was clipped"
    return found


def smooth_text():
    """A text in which each letter makes three others likely. Its loss falls smoothly, without a sudden drop at a step that would
    depend on rounding."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz ,.\n"
    likely = {letter: draw.sample(letters, 3) for letter in letters}
    written = ["a"]
    for _ in range(50_000):
        written.append(draw.choice(likely[written[-1]]) if draw.random() < 0.8 else draw.choice(letters))
    return "".join(written)


def check_overlay(folder, dump_model, overrides, mixer, precision):
    config, initial, ours = dump(folder, dump_model, smooth_text(), [
        "train.steps=200", f"train.precision={precision}", f"model.mixer={MIXERS[mixer]}", *overrides])
    reference = functools.partial(train_reference, config, initial, ours["ids"], ours["targets"])
    exact = reference()[0]
    difference = (ours["losses"] - exact).abs().max().item()
    limit = OVERLAY_TOLERANCE[precision]
    found = f"loss {exact[0]:.4f} to {exact[-1]:.4f}; largest difference {difference:.1e}"
    if precision == "bf16":
        of_rounding = (reference(autocast=True)[0] - exact).abs().max().item()
        found += f"; of PyTorch's autocast {of_rounding:.1e}"
        limit = max(limit, 2 * of_rounding)
    assert exact[0] - exact[-1] > 0.5, f"{found}: nothing was learnt, so the curves agree about nothing"
    assert difference <= limit, f"{found}: more than {limit:.1e}"
    return found


def cases_of(what):
    """{name: overrides} for trainings of fifty steps."""
    if what == "mixers":
        return {f"{mixer} {norm}-norm": [f"model.mixer={MIXERS[mixer]}", f"model.norm.position={norm}"]
                for mixer in MIXERS if mixer not in {*HASHED, *NEAR_ZERO, *SENSITIVE, *TWO_SIDED, *FROZEN} for norm in ("pre", "post")}
    cases = {}
    for name, optimizer in OPTIMIZERS.items():
        for mixer in ("scaled_dot_product", "quadratic") if name.startswith("muon") else ("scaled_dot_product",):
            cases[f"{name}, {mixer}"] = [f"train.optimizer={optimizer}", f"model.mixer={mixer}",
                                         *(SGD_RATE if name.startswith("sgd") else [])]
    return cases


if __name__ == "__main__":
    dump_model, what, *overrides = sys.argv[1:]
    if what == "overlay":
        run_cases({f"{mixer} {precision}": in_folder(check_overlay, dump_model, overrides, mixer, precision)
                   for mixer in ("scaled_dot_product", "metric") for precision in OVERLAY_TOLERANCE})
    else:
        run_cases({name: in_folder(check_fifty, dump_model, changes, what == "mixers")
                   for name, changes in cases_of(what).items()})
