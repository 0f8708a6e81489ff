"""Logits, loss and every gradient of our models against reference_model.py, from the safetensors that dump_model writes:
a GPT, a masked language model on packed texts, and classifiers with every head on padded ones, for every mixer, norm,
feed-forward branch and kind of positions.

usage: compare_model.py DUMP_MODEL METAFORMER
"""
import functools
import json
import re
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import reference_model
from common import in_folder, run, run_cases

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
    "scaled_dot_product_normalised": "{kind: scaled_dot_product, qk_norm: true}",
    "quadratic_own": "{kind: quadratic, values: own}",
    "metric_own": "{kind: metric, values: own}",
    "metric_diagonal_own": "{kind: metric, constraint: diagonal, values: own}",
    "metric_normalised": "{kind: metric, qk_norm: true}",
    "metric_own_normalised": "{kind: metric, values: own, qk_norm: true}",
    "metric_unnormalised_values": "{kind: metric, values: unnormalised, qk_norm: true}",
    "quadratic_unnormalised_values": "{kind: quadratic, values: unnormalised, qk_norm: true}",
    "metric_distance_psd_normalised": "{kind: metric, constraint: psd, score: distance, qk_norm: true}",
    "scaled_dot_product_temperature": "{kind: scaled_dot_product, qk_norm: true, learned_temperature: true}",
    "quadratic_temperature": "{kind: quadratic, qk_norm: true, learned_temperature: true, fixed_norm: true}",
    "metric_temperature": "{kind: metric, qk_norm: true, learned_temperature: true}",
    "metric_identity_temperature": "{kind: metric, constraint: identity, qk_norm: true, learned_temperature: true}",
    "metric_fixed_norm": "{kind: metric, values: own, fixed_norm: true}",
    "metric_distance_psd_temperature":
        "{kind: metric, constraint: psd, score: distance, qk_norm: true, learned_temperature: true, fixed_norm: true}",
    "scaled_dot_product_window": "{kind: scaled_dot_product, window: 5}",
    "scaled_dot_product_one_key_head": "{kind: scaled_dot_product, key_value_heads: 1, qk_norm: true}",
    "scaled_dot_product_sinks": "{kind: scaled_dot_product, sinks: true}",
    "scaled_dot_product_sigmoid": "{kind: scaled_dot_product, weights: sigmoid}",
    "scaled_dot_product_window_sinks": "{kind: scaled_dot_product, window: 4, sinks: true, key_value_heads: 1}",
    "lsh": "{kind: lsh}",
    "lsh_chunks": "{kind: lsh, chunk: 4, rounds: 2}",
    "lsh_buckets": "{kind: lsh, chunk: 5, buckets: 4, visible: bucket, correct_duplicates: true}",
    "differential": "{kind: differential}",
    "linear_attention": "{kind: linear_attention}",
    "linear_attention_taylor": "{kind: linear_attention, features: taylor, feature_width: 5, convolution: 3}",
    "retention": "{kind: retention}",
    "gated_linear_attention": "{kind: gated_linear_attention, convolution: 2}",
    "mamba2": "{kind: mamba2, state: 10}",
    "mamba2_wide": "{kind: mamba2, state: 6, expand: 2, convolution: 0}",
    "delta_net": "{kind: delta_net}",
    "gated_delta_net": "{kind: gated_delta_net}",
    "rwkv7": "{kind: rwkv7}",
    "short_convolution": "{kind: short_convolution}",
    "hyena": "{kind: hyena}",
    "hyena_3": "{kind: hyena, order: 3, filter_width: 9, convolution: 0}",
    "fourier": "{kind: fourier}",
    "spatial_gating": "{kind: spatial_gating}",
    "static": "{kind: static}",
    "static_inputs": "{kind: static, values: inputs}",
    "random": "{kind: random}",
    "random_own": "{kind: random, values: own}",
    "average_pooling": "{kind: average_pooling}",
    "average_pooling_all": "{kind: average_pooling, window: all}",
    "identity": "{kind: identity}",
    "none": "{kind: none}",
}
# Post-norm attention without residual connections makes tokens equal (Dong et al. 2021), and the gradient of its scores
# smaller than float32's rounding of the whole gradient. So these cases have a mixer without scores.
NORMS = {f"{kind} {position}{'' if residual else ', no residual'}":
         [f"model.norm={{kind: {kind}, position: {position}, epsilon: 1e-3}}", f"model.residual={str(residual).lower()}",
          *(["model.mixer=average_pooling"] if position == "post" and not residual else [])]
         for kind in ("layer_norm", "rms_norm") for position in ("pre", "post", "both") for residual in (True, False)}
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "{kind: silu, beta: 1.7}", "relu_squared")
FEED_FORWARDS = ["none", *(f"{{kind: {kind}, activation: {activation}{options}}}" for activation in ACTIVATIONS
                 for kind, options in (("mlp", ", ratio: 2.6"), ("mlp", ", output_activation: true"), ("gated", "")))]
HYBRIDS = {
    "a pattern": ["model.layers=5", "model.mixer=[{mixer: {kind: mamba2, state: 9}, layers: 2}, scaled_dot_product]"],
    "a mixer for each layer, with a convolution": ["model.layers=3", "model.mixer=[static, {kind: metric, values: own}, linear_attention]",
                                                   "model.convolution=4"],
    "no feed-forward branch": ["model.mixer=[short_convolution, mamba2]", "model.feed_forward=none", "model.convolution=2"],
}
POSITIONS = ("none", "learned", "sinusoidal", "rotary", "{kind: rotary, base: 500, fraction: 0.5}", "alibi",
             "{kind: t5, buckets: 6, max_distance: 7}", "{kind: shaw, max_distance: 3}", "transformer_xl",
             "{kind: transformer_xl, shared_biases: false, clamp_length: 6}")
POSITIONED = ("scaled_dot_product", "quadratic", "quadratic_full", "metric", "metric_own", "metric_distance_psd",
              "metric_distance_identity", "scaled_dot_product_temperature", "metric_distance_psd_temperature",
              "scaled_dot_product_sigmoid", "scaled_dot_product_window_sinks", "differential")
HEADS = ("per_token_mean", "mean_pooled", "first_token")
TOLERANCE = {"float32": 1e-5, "float64": 1e-11}  # relative L2 per tensor of ours in this precision, against float64
# The error of a gradient whose norm is below this part of the whole gradient's is relative to the whole gradient. Rounding in
# float32 is of the size of the summed terms, and a sum is smaller if terms cancel: for a temperature, which sums over all
# pairs of tokens, or for a bias that pooling cancels, whose gradient is 0. Then float64 shows whether the formula is right.
SMALL = 1e-3


def relative_error(value, expected, whole=0):
    size = expected.norm().item()
    return (value.double() - expected).norm().item() / (size if size > SMALL * whole else whole)


def reference_logits(config, weights, ids, segments):
    if config["model"]["kind"] in ("lstm", "gru"):
        return reference_model.recurrent(config, weights, ids)
    if config["model"]["kind"] == "feed_forward":
        return reference_model.feed_forward_model(config, weights, ids)
    if config["task"]["kind"] == "classification":
        return reference_model.classify(config, weights, ids, segments)
    if config["task"]["kind"] == "masked_language_model":
        return reference_model.unmask(config, weights, ids, segments)
    return reference_model.forward(config, weights, ids)


def compare(folder, logits_of=reference_logits):
    """The relative error of every tensor of the model that dump_model wrote, against logits_of(config, weights, ids, segments)."""
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    expected = load_file(folder / "expected.safetensors")
    weights = {name: weight.double().requires_grad_("grad." + name in expected) for name, weight in weights.items()}
    logits = logits_of(config, weights, expected["ids"], expected.pop("segments", None))
    if (places := expected.pop("places", None)) is not None:
        logits = logits.flatten(0, 1)[places]
    loss = F.cross_entropy(logits.flatten(0, -2), expected["targets"])
    loss.backward()
    gradients = {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in weights.items() if w.requires_grad}
    whole = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm().item()
    errors = {"logits": relative_error(expected["logits"], logits.detach()), "loss": relative_error(expected["loss"], loss.detach())}
    for name, gradient in gradients.items():
        errors["grad." + name] = relative_error(expected["grad." + name], gradient, whole)
    assert set(expected) == {"ids", "targets", *errors}, "tensors are missing on one side"
    return errors


def check_against(logits_of, common, dump_model, overrides, precisions=("float32",)):
    """The worst error of one model, against another implementation."""
    def errors_of(folder):
        errors = {}
        for precision in precisions:
            run(dump_model, folder, *(["float64"] if precision == "float64" else []), *common, *overrides)
            errors |= {(name, precision): error for name, error in compare(folder, logits_of).items()}
        return errors

    errors = in_folder(errors_of)()
    worst = max(errors, key=lambda tensor: errors[tensor] / TOLERANCE[tensor[1]])
    found = f"worst error {errors[worst]:.1e} {worst[1]} ({worst[0]})"
    assert errors[worst] <= TOLERANCE[worst[1]], found
    return found


PLAIN = ["model.bias=false", "model.embedding.tie=true"]
BIASED = ["model.bias=true", "model.embedding.tie=false"]
CLASSIFY = ["task=classification", "model.bias=true"]
MASKED = ["task=masked_language_model", "model.bias=true"]
MODELS = {"plain": PLAIN, "biased": BIASED, "masked": MASKED, **{head: [*CLASSIFY, f"task.head={head}"] for head in HEADS}}


# Classifiers that read regions of tokens; the first ones without blocks.
REGIONS = ("{kind: sequence, shortest: 1, longest: 3}", "sequence")
POOLED = "max_pooled"
BAG = "{kind: max_pooled, response_norm: true, bag: {kind: naive_bayes, buckets: 60, units: 5}}"
REGION_MODELS = {
    **{f"pooled {region}, {head}": ["model.layers=0", "model.positions=none", f"model.embedding.region={region}",
                                    f"task.head={head}"] for region in REGIONS for head in (POOLED, BAG)},
    **{f"{head}, {region}": ["model.layers=1", "model.heads=3", f"model.embedding.region={region}", f"task.head={head}"]
       for region in ("none", *REGIONS) for head in (*HEADS, POOLED, BAG)},
}

# Models of other kinds than transformers.
OTHERS = (*(f"{{kind: {kind}, layers: {layers}, width: 24, context: 17, embedding: {embedding}}}" for kind in ("lstm", "gru")
            for layers, embedding in ((1, "{tie: true}"), (3, "{tie: false, scale: sqrt_width}"))),
          *(f"{{kind: feed_forward, window: {window}, width: 12, context: 17, {options}}}" for window in (1, 5)
            for options in ("hidden: 30", "hidden: 12, embedding: {tie: true, scale: sqrt_width}")))


def check(folder, dump_model, *changes):
    """The worst error of each model with these overrides in each precision; one process writes them all."""
    common = ["model.layers=2", "model.heads=3", "model.width=24", "model.context=17", *changes]
    sees_all = any("kind: fourier" in change for change in changes)
    models = {name: overrides for name, overrides in MODELS.items() if not (sees_all and name in ("plain", "biased"))}
    arguments = [word for name, overrides in models.items() for precision in TOLERANCE
                 for word in ("--", folder / f"{name} {precision}", *(["float64"] if precision == "float64" else []),
                              *common, *overrides)]
    run(dump_model, *arguments[1:])
    errors = {(name, precision): compare(folder / f"{name} {precision}") for name in models for precision in TOLERANCE}
    worst = {model: max(tensors, key=tensors.get) for model, tensors in errors.items()}
    found = ", ".join(f"{name} {errors[name, precision][tensor]:.1e} {precision} ({tensor})"
                      for (name, precision), tensor in worst.items())
    # A classifier adds up gradients of all tokens, which nearly cancel after the norms of these two mixers: only float64 shows
    # whether the formula is right.
    cancels = any(f"kind: {kind}}}" in override for override in common for kind in ("retention", "gated_delta_net"))
    judged = {model: tensor for model, tensor in worst.items() if not (cancels and model[0] in HEADS and model[1] == "float32")}
    assert all(errors[model][tensor] <= TOLERANCE[model[1]] for model, tensor in judged.items()), found
    return found


def of_mixer(name):
    """Overrides for a mixer, with four heads instead of three if they are pairs."""
    return [f"model.mixer={MIXERS[name]}", *(["model.heads=4"] if name == "differential" else [])]


def check_that_every_kind_is_here(metaformer, key, cases):
    """`cases` are texts, which must name every kind that the program has for the key."""
    keys = json.loads(run(metaformer, "config", "explain", "--json", key))
    missing = [kind for found in keys for kind in found.get("kinds", [])
               if not any(re.search(rf"\b{kind}\b", case) for case in cases)]
    assert not missing, f"no case for {missing}"
    return "none is missing"


if __name__ == "__main__":
    dump_model, metaformer = sys.argv[1:]
    kinds = {"model.mixer": MIXERS.values(), "model.norm": NORMS, "model.feed_forward": FEED_FORWARDS, "model.positions": POSITIONS,
             "model.feed_forward.activation": FEED_FORWARDS, "model.embedding.region": REGION_MODELS}
    run_cases({
        **{f"kinds of {key}": functools.partial(check_that_every_kind_is_here, metaformer, key, cases)
           for key, cases in kinds.items()},
        **{f"{mixer} {norm}-norm": in_folder(check, dump_model, *of_mixer(mixer), f"model.norm.position={norm}")
           for mixer in MIXERS for norm in ("pre", "post")},
        **{f"{mixer}, positions {positions}": in_folder(
            check, dump_model, *of_mixer(mixer), f"model.positions={positions}")
           for mixer in POSITIONED for positions in POSITIONS},
        **{norm: in_folder(check, dump_model, *overrides) for norm, overrides in NORMS.items()},
        **{name: in_folder(check, dump_model, *overrides) for name, overrides in HYBRIDS.items()},
        **{branch: in_folder(check, dump_model, f"model.feed_forward={branch}") for branch in FEED_FORWARDS},
        **{name: functools.partial(check_against, reference_logits,
                                   ["task=classification", "model.width=24", "model.context=17"], dump_model, overrides,
                                   tuple(TOLERANCE))
           for name, overrides in REGION_MODELS.items()},
        **{model: functools.partial(check_against, reference_logits, [], dump_model, [f"model={model}"], tuple(TOLERANCE))
           for model in OTHERS},
    })
