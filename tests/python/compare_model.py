"""Logits, loss and every gradient of our models against reference_model.py, from the safetensors that dump_model writes:
a GPT, and classifiers with every head on padded texts.

usage: compare_model.py DUMP_MODEL MIXER pre|post
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import reference_model

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


def compare(dump_model, overrides):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([dump_model, folder, *overrides], check=True)
        config = json.loads((Path(folder) / "config.json").read_text())
        weights = load_file(Path(folder) / "model.safetensors")
        expected = load_file(Path(folder) / "expected.safetensors")
    weights = {name: weight.double().requires_grad_() for name, weight in weights.items()}
    if config["task"] == "classification":
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


def main():
    dump_model, mixer, norm = sys.argv[1:]
    failed = False
    plain = ["model.bias=false", "model.tie_embeddings=true", "model.feed_forward.activation=gelu"]
    biased = ["model.bias=true", "model.tie_embeddings=false", "model.feed_forward.activation=relu"]
    classify = ["task=classification", "model.bias=true"]
    for other in (plain, biased, *([*classify, f"model.head={head}"] for head in HEADS)):
        errors = compare(dump_model, [f"model.mixer={MIXERS[mixer]}", f"model.norm.position={norm}", "model.layers=2",
                                      "model.heads=3", "model.width=24", "model.context=17", *other])
        worst = max(errors, key=errors.get)
        print(f"{mixer} {norm} {' '.join(other)}: {len(errors)} tensors, worst {worst} {errors[worst]:.2e}")
        failed |= not errors[worst] <= TOLERANCE
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
