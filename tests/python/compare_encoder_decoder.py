"""Logits, loss and every gradient of our encoder and decoder against torch.nn's transformer layers with our weights, from
the safetensors that dump_model writes: norms before and after branches, own and shared embeddings and head, padding on both sides.

usage: compare_encoder_decoder.py DUMP_MODEL
"""
import functools
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from common import in_folder, run, run_cases

WIDTH, HEADS, HIDDEN = 16, 4, 40
SIZES = ["task=sequence_to_sequence", "model.kind=encoder_decoder", "model.layers=2", f"model.heads={HEADS}",
         f"model.width={WIDTH}", "model.context=9", "model.bias=true", "model.encoder.layers=3",
         "model.mixer=scaled_dot_product", "model.cross_mixer=scaled_dot_product",
         "model.encoder.mixer=scaled_dot_product",
         f"model.feed_forward={{kind: mlp, activation: relu, ratio: {HIDDEN / WIDTH}}}"]
TOLERANCE = 1e-5
LAYER = {"self_attn.in_proj_weight": "mixer.query_key_value.weight",
         "self_attn.in_proj_bias": "mixer.query_key_value.bias",
         "self_attn.out_proj.weight": "mixer.output.weight", "self_attn.out_proj.bias": "mixer.output.bias",
         "linear1.weight": "feed_forward.up.weight", "linear1.bias": "feed_forward.up.bias",
         "linear2.weight": "feed_forward.down.weight", "linear2.bias": "feed_forward.down.bias"}
CROSS = {"multihead_attn.in_proj_weight": "cross_mixer.query_key_value.weight",
         "multihead_attn.in_proj_bias": "cross_mixer.query_key_value.bias",
         "multihead_attn.out_proj.weight": "cross_mixer.output.weight",
         "multihead_attn.out_proj.bias": "cross_mixer.output.bias"}
ENCODER_NORMS = {"norm1": "mixer_norm", "norm2": "feed_forward_norm"}
DECODER_NORMS = {"norm1": "mixer_norm", "norm2": "cross_norm", "norm3": "feed_forward_norm"}


def names(side, layers, parts, norms):
    """{name of torch's parameter: name of ours}"""
    of_norms = {f"{theirs}.{kind}": f"{ours}.{kind}" for theirs, ours in norms.items() for kind in ("weight", "bias")}
    return {f"layers.{i}.{theirs}": f"{side}.blocks.{i}.{ours}"
            for i in range(layers) for theirs, ours in (parts | of_norms).items()}


def stack(layer, container, count, final_norm):
    return container(layer, count, norm=nn.LayerNorm(WIDTH) if final_norm else None).double().eval()


class Reference:
    """torch.nn's layers with leaf tensors of our weights, so that gradients have our names."""

    def __init__(self, weights, pre_norm):
        self.weights = {name: w.double().requires_grad_() for name, w in weights.items()}
        sizes = dict(d_model=WIDTH, nhead=HEADS, dim_feedforward=HIDDEN, dropout=0, batch_first=True,
                     norm_first=pre_norm)
        self.encoder = stack(nn.TransformerEncoderLayer(**sizes), functools.partial(
            nn.TransformerEncoder, enable_nested_tensor=False), 3, pre_norm)
        self.decoder = stack(nn.TransformerDecoderLayer(**sizes), nn.TransformerDecoder, 2, pre_norm)
        self.encoder_names = names("encoder", 3, LAYER, ENCODER_NORMS)
        self.decoder_names = names("transformer", 2, LAYER | CROSS, DECODER_NORMS)
        if pre_norm:
            for kind in ("weight", "bias"):
                self.encoder_names[f"norm.{kind}"] = f"encoder.final_norm.{kind}"
                self.decoder_names[f"norm.{kind}"] = f"transformer.final_norm.{kind}"

    def call(self, module, name_of, *inputs, **options):
        given = {theirs: self.weights[ours] for theirs, ours in name_of.items()}
        assert set(given) == {name for name, _ in module.named_parameters()}
        return torch.func.functional_call(module, given, inputs, options)

    def embed(self, side, ids):
        table = self.weights.get(f"{side}.token_embedding.weight", self.weights["transformer.token_embedding.weight"])
        return table[ids] * WIDTH ** 0.5 + self.weights[f"{side}.position_embedding.weight"][:ids.shape[1]]

    def forward(self, batch):
        source_padding = batch["source_segments"] < 0
        memory = self.call(self.encoder, self.encoder_names, self.embed("encoder", batch["source"]),
                           src_key_padding_mask=source_padding)
        length = batch["ids"].shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.call(self.decoder, self.decoder_names, self.embed("transformer", batch["ids"]), memory,
                      tgt_mask=future, memory_key_padding_mask=source_padding)
        return x @ self.weights.get("head.weight", self.weights["transformer.token_embedding.weight"]).T


def compare(folder, dump_model, position, shared, tie):
    run(dump_model, folder, *SIZES, f"model.norm.position={position}", "model.positions=learned",
        f"model.shared_embedding={str(shared).lower()}", f"model.embedding.tie={str(tie).lower()}",
        "model.embedding.scale=sqrt_width")
    expected = load_file(folder / "expected.safetensors")
    reference = Reference(load_file(folder / "model.safetensors"), position == "pre")
    logits = reference.forward(expected)
    targets = expected["targets"].view(logits.shape[:2])
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    loss.backward()
    used = targets >= 0
    worst = {"logits": (logits - expected["logits"])[used].abs().max().item(),
             "loss": (loss - expected["loss"]).abs().item()}
    for name, weight in reference.weights.items():
        ours = expected[f"grad.{name}"].double()
        worst[name] = ((weight.grad - ours).abs().max() / ours.abs().max().clamp_min(1e-3)).item()
    name, error = max(worst.items(), key=lambda item: item[1])
    assert error <= TOLERANCE, f"{name} differs by {error:.1e}"
    return f"largest difference {error:.1e} ({name})"


if __name__ == "__main__":
    [dump_model] = sys.argv[1:]
    run_cases({f"{position}-norm, {'shared' if shared else 'own'} embeddings, {'tied' if tie else 'own'} head":
               in_folder(compare, dump_model, position, shared, tie)
               for position in ("pre", "post") for shared in (True, False) for tie in (True, False)})
