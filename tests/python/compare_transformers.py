"""Logits, loss and every gradient of our models against `transformers`' TransfoXLModel (the authors' formulas), which gets our
weights from the safetensors that dump_model writes; and LSH attention against its Reformer. (compare_pretrained.py compares
GPT-2 and LLaMA.)

usage: compare_transformers.py DUMP_MODEL
"""
import functools
import os
import sys

import torch

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRUST_REMOTE_CODE="1")
from transformers import ReformerConfig  # noqa: E402
from transformers.models.reformer.modeling_reformer import LSHSelfAttention  # noqa: E402

import lsh  # noqa: E402
from common import run_cases  # noqa: E402
from compare_model import check_against  # noqa: E402


def as_type(given, other=None, *, dtype=None):
    """What the code of Transformer-XL means by `x.type_as(dtype=...)`, an argument that PyTorch does not know."""
    return given.to(dtype if dtype is not None else other.dtype)


torch.Tensor.type_as = as_type
from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLModel  # noqa: E402

XL = ["model.layers=2", "model.heads=3", "model.width=24", "model.context=17", "model.embedding.scale=sqrt_width",
      "model.mixer={kind: scaled_dot_product, score_std: null}"]
RELU = "model.feed_forward={activation: relu, ratio: 3}"
XL_CASES = {
    "post-norm, biases of every layer": [RELU, "model.norm.position=post",
                                         "model.positions={kind: transformer_xl, shared_biases: false}"],
    "pre-norm, shared biases": [RELU, "model.positions=transformer_xl", "model.norm.final=false"],
    "distances clamped": [RELU, "model.norm.position=post", "model.positions={kind: transformer_xl, clamp_length: 6}"],
}


def xl_parameters(model, weights):
    """Parameters of TransfoXLModel as functions of ours."""
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


def xl_logits(config, weights, ids, _segments):
    """In float32: theirs masks with a constant of float64."""
    model = config["model"]
    theirs = TransfoXLModel(TransfoXLConfig(
        vocab_size=len(weights["transformer.token_embedding.weight"]), cutoffs=[], div_val=1, d_model=model["width"],
        d_embed=model["width"], n_head=model["heads"], d_head=model["width"] // model["heads"],
        d_inner=weights["transformer.blocks.0.feed_forward.down.weight"].shape[1], n_layer=model["layers"], mem_len=0,
        pre_lnorm=model["norm"]["position"] == "pre", clamp_len=model["positions"]["clamp_length"] or -1,
        same_length=False, untie_r=True, layer_norm_epsilon=model["norm"]["epsilon"], proj_share_all_but_first=False)).eval()
    parameters = {name: value.float() for name, value in xl_parameters(model, weights).items()}
    missing = {name: torch.zeros_like(value) for name, value in theirs.named_parameters() if name not in parameters}
    assert all(name.endswith(".bias") for name in missing), f"parameters of theirs that have no value: {sorted(missing)}"
    hidden = torch.func.functional_call(theirs, parameters | missing, (ids,)).last_hidden_state
    return (hidden @ parameters["word_emb.emb_layers.0.weight"].T).double()


HEADS, WIDTH, BUCKETS, TOLERANCE = 2, 10, 4, 1e-5  # of the Reformer
# Their layer rounds the vectors' norms by an epsilon of 1e-6, and masks by -1e5 in the type of the scores.


def check_reformer(rounds, chunk, c, causal):
    """The reference model's LSH attention (lsh.py), which the program is compared with, against the Reformer layer with the
    same buckets, in float64."""
    torch.manual_seed(1)
    config = ReformerConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, attention_head_size=WIDTH, lsh_attn_chunk_length=chunk,
        lsh_num_chunks_before=1, lsh_num_chunks_after=0 if causal else 1, num_hashes=rounds, num_buckets=BUCKETS,
        is_decoder=causal, lsh_attention_probs_dropout_prob=0.0)
    theirs = LSHSelfAttention(config).double().eval()
    theirs.mask_value_float32 = theirs.mask_value_float32.double()
    theirs.self_mask_value_float32 = theirs.self_mask_value_float32.double()
    x = 3 * torch.randn(2, c, HEADS * WIDTH, dtype=torch.float64)
    q, v = (layer(x).unflatten(2, (HEADS, WIDTH)).transpose(1, 2) for layer in (theirs.query_key, theirs.value))
    options = {"chunk": chunk, "rounds": rounds, "buckets": str(BUCKETS), "visible": "chunk", "correct_duplicates": False}
    bucket = lsh.buckets(q, options, c)
    ours = lsh.attend(q, v, bucket, torch.zeros(2, c, dtype=torch.long), options, causal)
    with_round = bucket + BUCKETS * torch.arange(rounds)[:, None]
    with torch.no_grad():
        given = theirs(x, buckets=with_round.flatten(2)).hidden_states.unflatten(2, (HEADS, WIDTH)).transpose(1, 2)
    error = ((ours - given).norm() / given.norm()).item()
    assert error < TOLERANCE, f"relative error {error:.1e}"
    return f"{error:.1e}"


if __name__ == "__main__":
    [dump_model] = sys.argv[1:]
    run_cases({
        **{f"Transformer-XL, {name}": functools.partial(check_against, xl_logits, XL, dump_model, changes)
           for name, changes in XL_CASES.items()},
        **{f"Reformer, {rounds} rounds, chunks of {chunk}, {c} tokens, {'causal' if causal else 'both ways'}":
           functools.partial(check_reformer, rounds, chunk, c, causal)
           for rounds, chunk, c in ((1, 4, 16), (3, 4, 16), (2, 8, 64), (2, 8, 8)) for causal in (True, False)}})
