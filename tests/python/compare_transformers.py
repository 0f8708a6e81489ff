"""Logits, loss and every gradient of our LLaMA and GPT-2 against `transformers`' LlamaForCausalLM and GPT2LMHeadModel, which
get our weights from the safetensors that dump_model writes.

usage: compare_transformers.py DUMP_MODEL
"""
import functools
import os
import sys

import torch

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

from cases import run_cases  # noqa: E402
from compare_model import check_against  # noqa: E402

COMMON = ["model.layers=2", "model.heads=3", "model.width=24", "model.context=17"]
LLAMA = ["model.norm={kind: rms_norm, epsilon: 1e-6}", "model.feed_forward=gated", "model.positions=rotary",
         "model.mixer=scaled_dot_product"]
GPT2 = ["model.bias=true", "model.feed_forward.activation=gelu_tanh", "model.mixer=scaled_dot_product"]
CASES = {
    "LLaMA": [*LLAMA, "model.embedding.tie=false"],
    "LLaMA with tied embeddings": LLAMA,
    "LLaMA with another rotary base and GEGLU": [*LLAMA, "model.positions={kind: rotary, base: 500}",
                                                 "model.feed_forward={kind: gated, activation: gelu, ratio: 2}"],
    "GPT-2": GPT2,
    "GPT-2 with a rectifier and untied embeddings": [*GPT2, "model.embedding.tie=false",
                                                     "model.feed_forward={activation: relu, ratio: 3}"],
}
# The activations by their names there.
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}


def llama(config, weights):
    """The module, and its parameters as functions of our weights."""
    model, name = config["model"], "transformer."
    theirs = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(weights[name + "token_embedding.weight"]), hidden_size=model["width"],
        intermediate_size=weights[name + "blocks.0.feed_forward.down.weight"].shape[1],
        num_hidden_layers=model["layers"], num_attention_heads=model["heads"], attn_implementation="eager",
        max_position_embeddings=model["context"], rms_norm_eps=model["norm"]["epsilon"],
        rope_theta=model["positions"]["base"], tie_word_embeddings=model["embedding"]["tie"],
        hidden_act=THEIR_ACTIVATIONS[model["feed_forward"]["activation"]["kind"]]))
    parameters = {"model.embed_tokens.weight": weights[name + "token_embedding.weight"],
                  "model.norm.weight": weights[name + "final_norm.weight"]}
    for layer in range(model["layers"]):
        ours, block = f"{name}blocks.{layer}.", f"model.layers.{layer}."
        parts = zip("qkv", weights[ours + "mixer.query_key_value.weight"].chunk(3))
        gate, up = weights[ours + "feed_forward.up.weight"].chunk(2)
        parameters |= {
            **{f"{block}self_attn.{part}_proj.weight": weight for part, weight in parts},
            block + "self_attn.o_proj.weight": weights[ours + "mixer.output.weight"],
            block + "mlp.gate_proj.weight": gate, block + "mlp.up_proj.weight": up,
            block + "mlp.down_proj.weight": weights[ours + "feed_forward.down.weight"],
            block + "input_layernorm.weight": weights[ours + "mixer_norm.weight"],
            block + "post_attention_layernorm.weight": weights[ours + "feed_forward_norm.weight"]}
    return theirs, parameters, "model.embed_tokens.weight"


def gpt2(config, weights):
    """The module, and its parameters as functions of our weights; theirs are transposed."""
    model, name = config["model"], "transformer."
    theirs = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(weights[name + "token_embedding.weight"]), n_positions=model["context"], n_embd=model["width"],
        n_layer=model["layers"], n_head=model["heads"], attn_implementation="eager",
        n_inner=weights[name + "blocks.0.feed_forward.down.weight"].shape[1],
        activation_function=THEIR_ACTIVATIONS[model["feed_forward"]["activation"]["kind"]],
        layer_norm_epsilon=model["norm"]["epsilon"], tie_word_embeddings=model["embedding"]["tie"]))
    parameters = {"transformer.wte.weight": weights[name + "token_embedding.weight"],
                  "transformer.wpe.weight": weights[name + "position_embedding.weight"]}
    linear = {"attn.c_attn": "mixer.query_key_value", "attn.c_proj": "mixer.output", "mlp.c_fc": "feed_forward.up",
              "mlp.c_proj": "feed_forward.down"}
    norms = {"ln_1": "mixer_norm", "ln_2": "feed_forward_norm"}
    for suffix in (".weight", ".bias"):
        parameters["transformer.ln_f" + suffix] = weights[name + "final_norm" + suffix]
        for layer in range(model["layers"]):
            ours, block = f"{name}blocks.{layer}.", f"transformer.h.{layer}."
            parameters |= {block + to + suffix: weights[ours + from_ + suffix].t() for to, from_ in linear.items()}
            parameters |= {block + to + suffix: weights[ours + from_ + suffix] for to, from_ in norms.items()}
    return theirs, parameters, "transformer.wte.weight"


def their_logits(config, weights, ids, _segments):
    make = llama if config["model"]["positions"]["kind"] == "rotary" else gpt2
    model, parameters, embedding = make(config, weights)
    parameters["lm_head.weight"] = parameters[embedding] if config["model"]["embedding"]["tie"] else weights["head.weight"]
    expected = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert set(parameters) == expected, f"parameters that only one side has: {set(parameters) ^ expected}"
    return torch.func.functional_call(model.double().eval(), parameters, (ids,), {"use_cache": False}).logits


if __name__ == "__main__":
    run_cases({name: functools.partial(check_against, their_logits, COMMON, sys.argv[1], overrides) for name, overrides in CASES.items()})
