"""Logits, loss and every gradient of our Transformer-XL against `transformers`' TransfoXLModel (the authors' formulas), which
gets our weights from the safetensors that dump_model writes. Theirs runs in float32: it masks with a constant of float64.

usage: compare_transfo_xl.py DUMP_MODEL
"""
import functools
import os
import sys

import torch

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRUST_REMOTE_CODE="1")

from cases import run_cases  # noqa: E402
from compare_model import check_against  # noqa: E402


def as_type(given, other=None, *, dtype=None):
    """What their code means by `x.type_as(dtype=...)`, an argument that PyTorch does not know."""
    return given.to(dtype if dtype is not None else other.dtype)


torch.Tensor.type_as = as_type
from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLModel  # noqa: E402

COMMON = ["model.layers=2", "model.heads=3", "model.width=24", "model.context=17", "model.embedding.scale=sqrt_width",
          "model.mixer={kind: scaled_dot_product, score_std: null}"]
RELU = "model.feed_forward={activation: relu, ratio: 3}"
CASES = {
    "post-norm, biases of every layer": [RELU, "model.norm.position=post",
                                         "model.positions={kind: transformer_xl, shared_biases: false}"],
    "pre-norm, shared biases": [RELU, "model.positions=transformer_xl", "model.norm.final=false"],
    "distances clamped": [RELU, "model.norm.position=post", "model.positions={kind: transformer_xl, clamp_length: 6}"],
}


def their_parameters(model, weights):
    """Their parameters as functions of ours."""
    name, own = "transformer.", not model["positions"]["shared_biases"]
    parameters = {"word_emb.emb_layers.0.weight": weights[name + "token_embedding.weight"]}
    for layer in range(model["layers"]):
        ours, theirs = f"{name}blocks.{layer}.", f"layers.{layer}."
        biases = ours + "mixer.positions.biases" if own else name + "distance_biases"
        parameters |= {
            theirs + "dec_attn.qkv_net.weight": weights[ours + "mixer.query_key_value.weight"],
            theirs + "dec_attn.o_net.weight": weights[ours + "mixer.output.weight"],
            theirs + "dec_attn.r_net.weight": weights[ours + "mixer.positions.projection.weight"],
            theirs + "dec_attn.r_w_bias": weights[biases + ".content"],
            theirs + "dec_attn.r_r_bias": weights[biases + ".distance"],
            theirs + "dec_attn.layer_norm.weight": weights[ours + "mixer_norm.weight"],
            theirs + "pos_ff.CoreNet.0.weight": weights[ours + "feed_forward.up.weight"],
            theirs + "pos_ff.CoreNet.3.weight": weights[ours + "feed_forward.down.weight"],
            theirs + "pos_ff.layer_norm.weight": weights[ours + "feed_forward_norm.weight"]}
    return parameters


def their_logits(config, weights, ids, _segments):
    model = config["model"]
    theirs = TransfoXLModel(TransfoXLConfig(
        vocab_size=len(weights["transformer.token_embedding.weight"]), cutoffs=[], div_val=1, d_model=model["width"],
        d_embed=model["width"], n_head=model["heads"], d_head=model["width"] // model["heads"],
        d_inner=weights["transformer.blocks.0.feed_forward.down.weight"].shape[1], n_layer=model["layers"], mem_len=0,
        pre_lnorm=model["norm"]["position"] == "pre", clamp_len=model["positions"]["clamp_length"] or -1,
        same_length=False, untie_r=True, layer_norm_epsilon=model["norm"]["epsilon"], proj_share_all_but_first=False)).eval()
    parameters = {name: value.float() for name, value in their_parameters(model, weights).items()}
    missing = {name: torch.zeros_like(value) for name, value in theirs.named_parameters() if name not in parameters}
    assert all(name.endswith(".bias") for name in missing), f"parameters of theirs that have no value: {sorted(missing)}"
    hidden = torch.func.functional_call(theirs, parameters | missing, (ids,)).last_hidden_state
    return (hidden @ parameters["word_emb.emb_layers.0.weight"].T).double()


if __name__ == "__main__":
    run_cases({name: functools.partial(check_against, their_logits, COMMON, sys.argv[1], overrides) for name, overrides in CASES.items()})
