"""Logits, loss and every gradient of our models against reference_model.py, from the safetensors that dump_model writes:
a GPT, and classifiers with every head on padded texts, for every mixer with pre- and post-norm.

usage: compare_model.py DUMP_MODEL METAFORMER
"""
import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import reference_model
from cases import run_cases

MIXERS = {
    "scaled_dot_product": "{kind: scaled_dot_product}",
    "quadratic": "{kind: quadratic}",
    "quadratic_full": "{kind: quadratic, form: full}",
    "metric": "{kind: metric}",
    "metric_psd": "{kind: metric, constraint: psd}",
    "metric_diagonal": "{kind: metric, constraint: diagonal}",
    "metric_identity": "{kind: metric, constraint: identity}",
    "metric_distance_psd": "{kind: metric, constraint: psd, score: distance}",
    "metric_distance_diagonal": "{kind: metric, constraint: diagonal, score: distance}",
    "metric_distance_identity": "{kind: metric, constraint: identity, score: distance}",
    "metric_as_published": "{kind: metric, score: as_published}",
    "average_pooling": "{kind: average_pooling}",
    "average_pooling_all": "{kind: average_pooling, window: all}",
    "identity": "{kind: identity}",
    "none": "{kind: none}",
}
HEADS = ("per_token_mean", "mean_pooled", "first_token")
TOLERANCE = 1e-5  # relative L2 per tensor, ours in float32 against float64
ZERO = 1e-12      # a gradient this far below the whole one is zero by the mathematics (a bias that pooling cancels)


def relative_error(value, expected, whole):
    size = expected.norm().item()
    return (value.double() - expected).norm().item() / (size if size > ZERO * whole else whole)


def compare(folder):
    """Relative errors by tensor of the model that dump_model wrote there."""
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    expected = load_file(folder / "expected.safetensors")
    weights = {name: weight.double().requires_grad_() for name, weight in weights.items()}
    if config["task"]["kind"] == "classification":
        logits = reference_model.classify(config, weights, expected["ids"], expected.pop("segments"))
    else:
        logits = reference_model.forward(config, weights, expected["ids"])
    loss = F.cross_entropy(logits.flatten(0, -2), expected["targets"])
    loss.backward()
    gradients = {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in weights.items()}
    whole = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm().item()
    errors = {"logits": relative_error(expected["logits"], logits.detach(), 0),
              "loss": relative_error(expected["loss"], loss.detach(), 0)}
    for name, gradient in gradients.items():
        errors["grad." + name] = relative_error(expected["grad." + name], gradient, whole)
    assert set(expected) == {"ids", "targets", *errors}, "tensors are missing on one side"
    return errors


PLAIN = ["model.bias=false", "model.embedding.tie=true", "model.feed_forward.activation=gelu"]
BIASED = ["model.bias=true", "model.embedding.tie=false", "model.feed_forward.activation=relu"]
CLASSIFY = ["task=classification", "model.bias=true"]
MODELS = {"plain": PLAIN, "biased": BIASED, **{head: [*CLASSIFY, f"task.head={head}"] for head in HEADS}}


def check(dump_model, mixer, norm):
    """The worst error of each model; one process writes them all."""
    common = [f"model.mixer={MIXERS[mixer]}", f"model.norm.position={norm}", "model.layers=2", "model.heads=3",
              "model.width=24", "model.context=17"]
    with tempfile.TemporaryDirectory() as folder:
        arguments = [word for name, overrides in MODELS.items() for word in ("--", f"{folder}/{name}", *common, *overrides)]
        subprocess.run([dump_model, *arguments[1:]], check=True)
        errors = {name: compare(Path(folder) / name) for name in MODELS}
    worst = {name: max(tensors, key=tensors.get) for name, tensors in errors.items()}
    found = ", ".join(f"{name} {errors[name][tensor]:.1e} ({tensor})" for name, tensor in worst.items())
    assert all(errors[name][tensor] <= TOLERANCE for name, tensor in worst.items()), found
    return found


def kinds_of_mixers(metaformer):
    """What the program has."""
    keys = json.loads(subprocess.check_output([metaformer, "config", "explain", "--json", "model.mixer"]))
    return set(keys[0]["kinds"])


def check_that_every_kind_is_here(metaformer):
    missing = kinds_of_mixers(metaformer) - {re.search(r"kind: (\w+)", mixer)[1] for mixer in MIXERS.values()}
    assert not missing, f"no case for {missing}"
    return "none is missing"


def main():
    dump_model, metaformer = sys.argv[1:]
    run_cases({"kinds of mixers": functools.partial(check_that_every_kind_is_here, metaformer),
               **{f"{mixer} {norm}-norm": functools.partial(check, dump_model, mixer, norm)
                  for mixer in MIXERS for norm in ("pre", "post")}})


if __name__ == "__main__":
    main()
