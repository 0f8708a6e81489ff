"""Compares `metaformer inspect` with reference_model.py, for runs of a few steps: attention, scores, the forms of the
checkpoint, distances between token embeddings, and losses by position and by context.

usage: compare_inspection.py METAFORMER
"""
import json
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import reference_model
from common import in_folder, run, run_cases, sets
from compare_model import MIXERS

CONTEXT, HEADS, WIDTH = 12, 3, 24
TEXT = "to be or not"
TINY = ["data.path=text.txt", "model.layers=2", f"model.heads={HEADS}", f"model.width={WIDTH}", f"model.context={CONTEXT}",
        "train.steps=30", "train.batch_size=8", "train.learning_rate=0.01", "train.eval_interval=30",
        "train.schedule.warmup_steps=0"]
CASES = {
    **{name: [f"model.mixer={MIXERS[name]}"] for name in (
        "scaled_dot_product", "quadratic", "quadratic_own", "quadratic_full", "quadratic_temperature", "metric",
        "metric_normalised", "metric_temperature", "metric_fixed_norm", "metric_distance_psd", "metric_diagonal",
        "metric_identity", "metric_as_published")},
    "biased and post-norm": ["model.mixer=scaled_dot_product", "model.bias=true", "model.norm.position=post"],
    "bf16": ["model.mixer=scaled_dot_product", "train.precision=bf16"],
    "reference": ["model.mixer={kind: metric, backend: reference}"],
    **{f"{mixer}, {positions}": [f"model.mixer={mixer}", f"model.positions={positions}"]
       for mixer in ("scaled_dot_product", "metric") for positions in ("rotary", "alibi", "t5", "shaw", "transformer_xl")},
}
TOLERANCE = 1e-6


def write_text(folder):
    generator = torch.Generator().manual_seed(1)
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    drawn = torch.randint(len(words), (3000,), generator=generator)
    (folder / "text.txt").write_text(" ".join(words[i] for i in drawn) + "\n")


class Inspected:
    """A run, its inspection, and its config and weights for the reference."""

    def __init__(self, metaformer, folder, overrides):
        write_text(folder)
        (folder / "empty.yaml").write_text("{}\n")
        run(metaformer, "train", "--config", "empty.yaml", *sets(*TINY, *overrides), "--out", "run", "--device", "cpu",
            cwd=folder)
        self.numbers = json.loads(run(metaformer, "inspect", "--run", "run", "--device", "cpu", "--text", TEXT,
                                      "--no-pictures", "--json", cwd=folder))
        self.arrays = load_file(folder / "run/inspect/inspection.safetensors")
        self.config = json.loads(run(metaformer, "config", "dump", "--json", "--config", "run/config.yaml", cwd=folder))
        weights = load_file(folder / "run/checkpoints/best/model.safetensors")
        self.weights = {name: weight.double() for name, weight in weights.items()}
        self.text = (folder / "text.txt").read_text()
        self.characters = sorted(set(self.text))

    def ids(self, text):
        return torch.tensor([[self.characters.index(character) for character in text]])

    def mixer_weights(self, layer, name):
        return self.weights[f"transformer.blocks.{layer}.mixer.{name}"]


def largest_difference(value, expected):
    assert value.shape == expected.shape, f"{tuple(value.shape)}, not {tuple(expected.shape)}"
    return (value.double() - expected).abs().max().item()


def check_close(errors, name, value, expected, size=None):
    """Keeps the largest error, divided by `size`: by default the largest expected value, at least 1."""
    size = max(expected.abs().max().item(), 1) if size is None else size
    errors[name] = max(errors.get(name, 0), largest_difference(value, expected) / size)


def expected_forms(inspected, layer):
    """The form of every head (None for scaled dot product), and the form between inputs (None if there is none)."""
    options, k, name = inspected.config["model"]["mixer"], WIDTH // HEADS, f"transformer.blocks.{layer}.mixer"
    if options["kind"] == "scaled_dot_product":
        query, key, _ = inspected.mixer_weights(layer, "query_key_value.weight").view(3, HEADS, k, WIDTH)
        return None, query.transpose(1, 2) @ key / math.sqrt(k)
    p = inspected.mixer_weights(layer, "projection.weight")[:WIDTH].view(HEADS, k, WIDTH)
    if options["kind"] == "quadratic" and options["form"] == "full":
        form = inspected.mixer_weights(layer, "full_form")
        return form, form / math.sqrt(k)
    if options["kind"] == "quadratic":
        form = reference_model.scored_form(inspected.weights, name, options, inspected.mixer_weights(layer, "form"))
    else:
        form = reference_model.metric_tensor(inspected.weights, name, options, HEADS, k)
    if options["qk_norm"] or options.get("score") == "as_published":
        return form, None
    twice = 2 if options.get("score") == "distance" else 1
    return form, twice * p.transpose(1, 2) @ form @ p / math.sqrt(k)


def expected_distances(inspected, layer):
    """Distances between the embeddings of all characters after the layer's norm: sign(s) sqrt(|s|) of the squares s."""
    model, k = inspected.config["model"], WIDTH // HEADS
    x = inspected.weights["transformer.token_embedding.weight"]
    name = f"transformer.blocks.{layer}.mixer"
    if model["norm"]["position"] != "post":
        x = reference_model.norm(inspected.weights, name + "_norm", model["norm"], x)
    form, between_inputs = expected_forms(inspected, layer)
    if model["mixer"]["kind"] == "scaled_dot_product":
        difference, form = (x[:, None] - x[None, :]).unsqueeze(0), between_inputs * math.sqrt(k)
    elif model["mixer"].get("form") == "full":
        difference = (x[:, None] - x[None, :]).unsqueeze(0)
    else:
        p = (x @ inspected.mixer_weights(layer, "projection.weight")[:WIDTH].T).view(-1, HEADS, k).transpose(0, 1)
        if model["mixer"]["qk_norm"]:
            p = reference_model.head_norm(p, inspected.weights.get(name + ".norm.weight"))
        difference = p[:, :, None] - p[:, None, :]
    difference = difference.expand(HEADS, -1, -1, -1)
    squares = torch.einsum("nvwi,nij,nvwj->nvw", difference, form, difference)
    return squares.sign() * squares.abs().sqrt()


def check_arrays(inspected, errors):
    seen = []
    reference_model.forward(inspected.config, inspected.weights, inspected.ids(TEXT), seen=seen)
    for layer, (scores, attention) in enumerate(seen):
        found = {name: inspected.arrays[f"layer.{layer}.{name}"].double() for name in ("attention", "scores", "distances")}
        assert (found["attention"].sum(2) - 1).abs().max() < TOLERANCE
        check_close(errors, "attention", found["attention"], attention[0], size=1)
        check_close(errors, "scores", found["scores"], scores[0])
        # A root turns an error e near 0 into sqrt(e), so squares are compared.
        expected = expected_distances(inspected, layer)
        squares = [distances * distances.abs() for distances in (found["distances"], expected)]
        check_close(errors, "squared distances", *squares)
        form, between_inputs = expected_forms(inspected, layer)
        for name, expected in (("form", form), ("input_form", between_inputs)):
            assert (f"layer.{layer}.{name}" in inspected.arrays) == (expected is not None), name
            if expected is not None:
                check_close(errors, name, inspected.arrays[f"layer.{layer}.{name}"], expected)


def check_summaries(inspected, errors):
    """Numbers that are computed from the arrays."""
    visible = torch.ones(len(TEXT), len(TEXT), dtype=torch.bool).tril()
    apart = (torch.arange(len(TEXT))[:, None] - torch.arange(len(TEXT))[None, :]).abs()
    for layer, described in enumerate(inspected.numbers["layers"]):
        for head, numbers in enumerate(described["heads"]):
            scores = inspected.arrays[f"layer.{layer}.scores"][head].double()
            attention = inspected.arrays[f"layer.{layer}.attention"][head].double()
            check_close(errors, "negative scores", torch.tensor(numbers["negative_scores"]),
                        (scores < 0)[visible].double().mean(), size=1)
            check_close(errors, "attention distance", torch.tensor(numbers["mean_attention_distance"]),
                        (attention * apart).sum(1).mean())


def check_losses(inspected, errors):
    """The split is the last tenth of the text, and its windows are consecutive."""
    ids = inspected.ids(inspected.text)[0]
    held_out = ids[len(ids) - len(ids) // 10:] if len(ids) % 10 == 0 else None
    positions = inspected.numbers["validation"]["loss_by_position"]
    targets = sum(entry["targets"] for entry in positions)
    held_out = ids[len(ids) - targets - 1:] if held_out is None else held_out
    assert len(held_out) == targets + 1, f"{len(held_out)} tokens, {targets} targets"
    for entry in positions[:: len(positions) - 1]:
        at = entry["position"]
        starts = range(0, targets - at, CONTEXT)
        windows = torch.stack([held_out[start:start + at + 1] for start in starts])
        logits = reference_model.forward(inspected.config, inspected.weights, windows)[:, -1]
        expected = F.cross_entropy(logits, torch.stack([held_out[start + at + 1] for start in starts]))
        check_close(errors, "loss by position", torch.tensor(entry["loss"]), expected, size=expected.item())
    last = positions[-1]["loss"]
    whole = inspected.numbers["validation"]["loss_by_context"][-1]
    assert whole["tokens"] == CONTEXT and abs(whole["loss"] - last) < 1e-5, f"{whole}, {last}"


def check(folder, metaformer, overrides, losses):
    inspected = Inspected(metaformer, folder, overrides)
    assert inspected.numbers["tokens"] == list(TEXT)
    errors = {}
    check_arrays(inspected, errors)
    check_summaries(inspected, errors)
    if losses:
        check_losses(inspected, errors)
    found = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    assert all(error <= TOLERANCE for error in errors.values()), found
    return found


if __name__ == "__main__":
    metaformer = str(Path(sys.argv[1]).resolve())
    run_cases({name: in_folder(check, metaformer, overrides, name == "metric")
               for name, overrides in CASES.items()})
