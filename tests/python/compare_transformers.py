"""Logits, loss and every gradient of our models against `transformers`' TransfoXLModel (the authors' formulas), which gets our
weights from the safetensors that dump_model writes; mamba2, gated_delta_net, short_convolution, fourier, differential, and
scaled_dot_product with sinks, a window and shared keys against its Mamba-2, Qwen3-Next, LFM2, FNet, DiffLlama and gpt-oss layers,
which replace the mixer of the reference model; LSH attention against its Reformer; and rwkv7 and spatial_gating against the packages
`rwkv` and `g-mlp-pytorch`. (compare_pretrained.py compares GPT-2 and LLaMA.)

usage: compare_transformers.py DUMP_MODEL
"""
import functools
import math
import os
import sys
import unittest.mock

import torch

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRUST_REMOTE_CODE="1", RWKV_V7_ON="1", RWKV_JIT_ON="0")
import rwkv.model  # noqa: E402
from g_mlp_pytorch import SpatialGatingUnit  # noqa: E402
from transformers import (  # noqa: E402
    DiffLlamaConfig, FNetConfig, GptOssConfig, Lfm2Config, Mamba2Config, Qwen3NextConfig, ReformerConfig)
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, DiffLlamaRotaryEmbedding  # noqa: E402
from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform  # noqa: E402
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding  # noqa: E402
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv  # noqa: E402
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet  # noqa: E402
from transformers.models.reformer.modeling_reformer import LSHSelfAttention  # noqa: E402

import lsh  # noqa: E402
import place_mixers  # noqa: E402
import reference_model  # noqa: E402
import state_mixers  # noqa: E402
from common import run_cases  # noqa: E402
from compare_model import check_against, reference_logits  # noqa: E402


def as_type(given, other=None, *, dtype=None):
    """`x.type_as(dtype=...)` as the code of Transformer-XL uses it; PyTorch does not have this argument."""
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
    """Logits in float32, because their code masks with a constant of float64."""
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


def mamba2(weights, name, options, x, n, _context):
    d = x.shape[-1]
    inner = options["expand"] * d
    theirs = Mamba2Mixer(Mamba2Config(
        hidden_size=d, num_heads=n, head_dim=inner // n, state_size=options["state"], expand=options["expand"], n_groups=1,
        conv_kernel=options["convolution"], chunk_size=8, use_bias=False, use_conv_bias=True), 0).double()

    def of(part):
        return weights[f"{name}.{part}"]

    def joined(*parts):
        return torch.cat([of(part) for part in parts])

    return torch.func.functional_call(theirs, {
        "in_proj.weight": joined("gate.weight", "value.projection.weight", "key_query.projection.weight", "step.weight"),
        "conv1d.weight": joined("value.filter", "key_query.filter")[:, None], "conv1d.bias": joined("value_bias", "key_query_bias"),
        "dt_bias": of("step_bias"), "A_log": of("log_rate"), "D": of("skip"), "norm.weight": of("norm"),
        "out_proj.weight": of("output.weight")}, (x,))


def gated_delta_net(weights, name, options, x, n, _context):
    d = x.shape[-1]
    theirs = Qwen3NextGatedDeltaNet(Qwen3NextConfig(
        hidden_size=d, linear_num_key_heads=n, linear_num_value_heads=n, linear_key_head_dim=d // n // 2,
        linear_value_head_dim=d // n, linear_conv_kernel_dim=options["convolution"], rms_norm_eps=1e-6), 0).double()

    def of(part):
        return weights[f"{name}.{part}"]

    def by_head(*parts):  # joins the rows of each head
        return torch.cat([of(part).unflatten(0, (n, -1)) for part in parts], 1).flatten(0, 1)

    return torch.func.functional_call(theirs, {
        "in_proj_qkvz.weight": by_head(*(f"{part}.projection.weight" for part in ("query", "key", "value")), "gate.weight"),
        "in_proj_ba.weight": by_head("rate.weight", "decay.weight"),
        "conv1d.weight": torch.cat([of(f"{part}.filter") for part in ("query", "key", "value")])[:, None],
        "dt_bias": of("decay_bias"), "A_log": of("log_rate"), "norm.weight": of("norm.weight"),
        "out_proj.weight": of("output.weight")}, (x,))


def short_convolution(weights, name, options, x, _n, _context):
    theirs = Lfm2ShortConv(Lfm2Config(hidden_size=x.shape[-1], conv_L_cache=options["convolution"], conv_bias=False), 0).double()
    return torch.func.functional_call(theirs, {
        "in_proj.weight": weights[name + ".input.weight"], "conv.weight": weights[name + ".filter"][:, None],
        "out_proj.weight": weights[name + ".output.weight"]}, (x,))


def unit(x, dim, p):
    """Our unit vector, with 1e-6 under the root as in flash-linear-attention, instead of a smallest norm of 1e-12."""
    assert p == 2
    return x / (x.square().sum(dim, keepdim=True) + 1e-6).sqrt()


def rwkv7(weights, name, options, x, n, context):
    """Their mixer, token by token. It has states and decays in float32, and six digits of exp(-1/2)."""
    d, layer = x.shape[-1], int(name.split(".")[2])
    first_values = context.setdefault("first_values", {})

    def of(part):
        return weights[f"{name}.{part}"]

    def low_rank(part):
        return of(part + ".in").T, of(part + ".out").T

    share = (of("first_share.base"), *low_rank("first_share")) if layer else (None,) * 3
    parameters = (*of("mixture"), of("decay.base"), *low_rank("decay"), of("rate.base"), *low_rank("rate"), *share, *low_rank("gate"),
                  of("key_direction"), of("key_share"), of("bonus"),
                  *(of(part + ".weight").T for part in ("receptance", "key", "value", "output")), of("norm_weight"), of("norm_bias"))
    rows = []
    for b, text in enumerate(x):
        before, state, tokens = torch.zeros_like(text[0]), torch.zeros(n, d // n, d // n), []
        for t, token in enumerate(text):
            with unittest.mock.patch.object(torch.nn.functional, "normalize", unit):
                y, before, state, value = rwkv.model.RWKV_x070_TMix_one(
                    layer, n, d // n, token, before, first_values.get((b, t)), state, *parameters)
            first_values[b, t] = value if layer == 0 else first_values[b, t]
            tokens.append(y)
        rows.append(torch.stack(tokens))
    return torch.stack(rows)


class GatedText(place_mixers.Text):
    def spatial_gating(self):
        hidden = torch.nn.functional.gelu(self.linear("input", self.x))
        theirs = SpatialGatingUnit(hidden.shape[-1], self.context, causal=self.causal).double()
        return self.linear("output", torch.func.functional_call(theirs, {
            "weight": self.weight("table"), "bias": self.weight("offset")[None], "norm.weight": self.weight("norm_weight"),
            "norm.bias": self.weight("norm_bias")}, (hidden[None],))[0])


class FNetText(place_mixers.Text):
    def fourier(self):
        theirs = FNetBasicFourierTransform(FNetConfig(use_tpu_fourier_optimizations=False))
        return theirs(self.x[None])[0][0] / math.sqrt(self.x.numel())  # theirs is not orthonormal


STATE = ["model.layers=2", "model.heads=3", "model.width=24", "model.context=21", "model.positions=none"]
STATE_CASES = {  # the recurrences of the first four are in float32
    "Mamba-2": (mamba2, ["model.mixer={kind: mamba2, state: 10}"]),
    "Mamba-2, twice as wide": (mamba2, ["model.mixer={kind: mamba2, state: 7, expand: 2, convolution: 3}"]),
    "Qwen3-Next, gated delta net": (gated_delta_net, ["model.mixer=gated_delta_net"]),
    "rwkv, time mix": (rwkv7, ["model.mixer=rwkv7"]),
    "LFM2, short convolution": (short_convolution, ["model.mixer=short_convolution"]),
    "LFM2, five tokens": (short_convolution, ["model.mixer={kind: short_convolution, convolution: 5}"]),
}


def causal_mask(c, window=0):
    place = torch.arange(c)
    distance = place[:, None] - place[None, :]
    seen = (distance >= 0) & (distance < (window or c))
    return torch.zeros(1, 1, c, c, dtype=torch.float64).masked_fill(~seen, -1e300)


def without_rotation(x):
    """Cosines and sines that rotate nothing."""
    ones = torch.ones(1, x.shape[1], 1, dtype=x.dtype)
    return ones, torch.zeros_like(ones)


def angles(rotary, x):
    """Cosines and sines as float64; theirs are float32."""
    return tuple(part.double() for part in rotary(x, torch.arange(x.shape[1])[None]))


def diff_llama(weights, name, options, x, n, context):
    """Their layer has the first heads of all pairs before the second ones, and a norm without gain; ours has a gain before the
    output projection. Their softmax and lambda are float32."""
    d, k, layer = x.shape[-1], x.shape[-1] // n, int(name.split(".")[2])
    config = DiffLlamaConfig(hidden_size=d, num_attention_heads=n, num_key_value_heads=n, rms_norm_eps=1e-6,
                             attention_dropout=0.0, max_position_embeddings=x.shape[1], attn_implementation="eager")
    theirs = DiffLlamaAttention(config, layer).double().eval()
    halves = [weights[name + ".query_key_value.weight"].unflatten(0, (3, n // 2, 2, k))[part].transpose(0, 1).reshape(d, d)
              for part in range(3)]
    rotates = context["positions"]["kind"] == "rotary"
    y, _ = torch.func.functional_call(theirs, {
        **{f"{part}_proj.weight": rows for part, rows in zip("qkv", halves)},
        "o_proj.weight": weights[name + ".output.weight"] * weights[name + ".norm.weight"].repeat(n // 2),
        **{f"lambda_{part}": weights[f"{name}.lambda_{part}"] for part in ("q1", "k1", "q2", "k2")}}, (x,), {
            "position_embeddings": angles(DiffLlamaRotaryEmbedding(config), x) if rotates else without_rotation(x),
            "attention_mask": causal_mask(x.shape[1])})
    return y


def gpt_oss(weights, name, options, x, n, context):
    """Their layer rotates halves of a head like ours, without YaRN."""
    d, k, c, few = x.shape[-1], x.shape[-1] // n, x.shape[1], options["key_value_heads"] or n
    config = GptOssConfig(hidden_size=d, num_attention_heads=n, num_key_value_heads=few, head_dim=k, num_hidden_layers=2,
                          layer_types=["full_attention"] * 2, attention_bias=False, attention_dropout=0.0,
                          max_position_embeddings=c, rope_theta=10000.0, rope_scaling=None)
    config._attn_implementation = "eager"
    theirs = GptOssAttention(config, 0).double().eval()
    rows = weights[name + ".query_key_value.weight"].split([d, few * k, few * k])
    rotates = context["positions"]["kind"] == "rotary"
    y, _ = torch.func.functional_call(theirs, {
        **{f"{part}_proj.weight": own for part, own in zip("qkv", rows)}, "o_proj.weight": weights[name + ".output.weight"],
        "sinks": weights[name + ".sinks"]}, (x,), {
            "position_embeddings": angles(GptOssRotaryEmbedding(config), x) if rotates else (
                torch.ones(1, c, k // 2, dtype=x.dtype), torch.zeros(1, c, k // 2, dtype=x.dtype)),
            "attention_mask": causal_mask(c, options["window"])})
    return y


SOFTMAX = ["model.layers=2", "model.heads=4", "model.width=24", "model.context=21"]
SOFTMAX_CASES = {
    "DiffLlama": (diff_llama, ["model.mixer=differential", "model.positions=none"]),
    "DiffLlama, rotary": (diff_llama, ["model.mixer=differential", "model.positions=rotary"]),
    "gpt-oss, sinks": (gpt_oss, ["model.mixer={kind: scaled_dot_product, sinks: true}", "model.positions=none"]),
    "gpt-oss, sinks, shared keys and a window, rotary": (gpt_oss, [
        "model.mixer={kind: scaled_dot_product, sinks: true, key_value_heads: 2, window: 6}", "model.positions=rotary"]),
}


def check_in_place_of(module, name, theirs, common, dump_model, changes):
    """Compares our model with the reference model, in which `theirs` replaces module.name."""
    def logits_of(*arguments):
        with unittest.mock.patch.object(module, name, theirs):
            return reference_logits(*arguments)

    return check_against(logits_of, common, dump_model, changes)


HEADS, WIDTH, BUCKETS, TOLERANCE = 2, 10, 4, 1e-5  # of the Reformer
# Their layer rounds the vectors' norms by an epsilon of 1e-6, and masks by -1e5 in the type of the scores.


def check_reformer(rounds, chunk, c, causal):
    """The LSH attention of the reference model (lsh.py) against the Reformer layer with the same buckets, in float64."""
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
        **{name: functools.partial(check_in_place_of, state_mixers, "mix", theirs, STATE, dump_model, changes)
           for name, (theirs, changes) in STATE_CASES.items()},
        **{f"FNet, {task}": functools.partial(check_in_place_of, place_mixers, "Text", FNetText, STATE, dump_model,
                                              [f"task={task}", "model.mixer=fourier"])
           for task in ("masked_language_model", "classification")},
        "g-mlp-pytorch, spatial gating": functools.partial(check_in_place_of, place_mixers, "Text", GatedText, STATE, dump_model,
                                                           ["model.mixer=spatial_gating"]),
        **{name: functools.partial(check_in_place_of, reference_model, "mixer", theirs, SOFTMAX, dump_model, changes)
           for name, (theirs, changes) in SOFTMAX_CASES.items()},
        **{f"Reformer, {rounds} rounds, chunks of {chunk}, {c} tokens, {'causal' if causal else 'both ways'}":
           functools.partial(check_reformer, rounds, chunk, c, causal)
           for rounds, chunk, c in ((1, 4, 16), (3, 4, 16), (2, 8, 64), (2, 8, 8)) for causal in (True, False)}})
