"""Reads models and tokenizers that `transformers` saves, and compares their logits. Their exports are read back unchanged, here
and by `transformers`. Exported runs have the same logits in `transformers`. Folders that are damaged or describe another kind of
model are an error.

usage: compare_pretrained.py DUMP_MODEL METAFORMER
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import pretrained  # before transformers, which must stay offline
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          PreTrainedTokenizerFast, logging)

import reference_model
from common import in_folder, run, run_cases, sets
from pretrained import VOCABULARY

TOLERANCE = 1e-5  # of logits of about 1, ours in float32 against float64
DUMP, METAFORMER = (Path(argument).resolve() for argument in sys.argv[1:3])
GPT2_SIZES = {**pretrained.GPT2_SIZES, "n_positions": 20}
LLAMA_SIZES = {**pretrained.LLAMA_SIZES, "max_position_embeddings": 20}
LINES = ["to be, or not to be: that is the question"]

# {name: the class, its config, and options for saving}
MODELS = {
    "GPT-2": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES), {}),
    "GPT-2, untied, with another activation, hidden width and epsilon":
        (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES, tie_word_embeddings=False, activation_function="relu", n_inner=40,
                                     layer_norm_epsilon=1e-3), {}),
    "GPT-2 in several files": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES), {"max_shard_size": "10KB"}),
    "GPT-2 in half precision": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES), {"type": torch.float16}),
    "GPT-2 with masks, and its tied head stored again":
        (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES),
         {"more": lambda t: {"transformer.h.0.attn.bias": torch.ones(1, 1, 20, 20, dtype=torch.bool),
                             "transformer.h.1.attn.masked_bias": torch.tensor(-1e4),
                             "lm_head.weight": t["transformer.wte.weight"].clone()}}),
    "GPT-2 without its head": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES), {"part": "transformer"}),
    "LLaMA": (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES), {}),
    "LLaMA, tied, with another base and epsilon":
        (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES, tie_word_embeddings=True, rope_theta=500.0, rms_norm_eps=1e-3), {}),
    "LLaMA with biases": (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES, attention_bias=True, mlp_bias=True), {}),
    "LLaMA with grouped queries and GEGLU":
        (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES, num_key_value_heads=2, hidden_act="gelu"), {}),
    "LLaMA with one key head and biases, in several files":
        (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES, num_key_value_heads=1, attention_bias=True, mlp_bias=True),
         {"max_shard_size": "10KB"}),
    "LLaMA with frequencies of its positions":
        (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES),
         {"more": lambda _: {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}}),
    "LLaMA in bfloat16": (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES), {"type": torch.bfloat16}),
}


def random_ids():
    return torch.randint(VOCABULARY, (3, 20), generator=torch.Generator().manual_seed(7))


def logits_there(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.double().eval()(ids, use_cache=False).logits.detach()


def largest_difference(a, b):
    return (a.double() - b.double()).abs().max().item()


def dump(folder, ids, out, code=0):
    save_file({"ids": ids}, out.with_suffix(".ids"))
    return run(DUMP, out, "pretrained", folder, out.with_suffix(".ids"), code=code)


def saved(folder, name):
    kind, config, how = MODELS[name]
    model = pretrained.random_model(kind, config).to(how.get("type", torch.float32))
    part = getattr(model, how["part"]) if "part" in how else model
    part.save_pretrained(folder, max_shard_size=how.get("max_shard_size", "1GB"))
    if "more" in how:
        change_tensors(folder, lambda tensors: tensors.update(how["more"](tensors)))


def check_model(root, name):
    folder, out, ids, config = root / "saved", root / "out", random_ids(), MODELS[name][1]
    saved(folder, name)
    dump(folder, ids, out)
    theirs = logits_there(folder, ids)
    read = largest_difference(load_file(out / "logits.safetensors")["logits"], theirs)
    written = largest_difference(logits_there(out / "exported", ids), theirs)
    assert theirs.abs().max() > 0.3, "logits are too small to compare"
    if "num_key_value_heads" in config.to_diff_dict():
        exported = json.loads((out / "exported/config.json").read_text())
        assert exported["num_key_value_heads"] == config.num_key_value_heads, exported
    assert read <= TOLERANCE and written <= 1e-12, f"logits differ by {read:.1e} as read, {written:.1e} as written"
    return f"logits of at most {theirs.abs().max():.1f} differ by {read:.1e} as read, {written:.1e} as written"


def byte_level_tokenizer():
    return pretrained.with_start(pretrained.byte_level_tokenizer(LINES, 290, "<|endoftext|>"), "<|endoftext|>")


def check_tokenizer(root):
    """The export of a folder whose tokenizer has fewer tokens than the model. compare_exported.py compares ids."""
    folder, out = root / "saved", root / "out"
    saved(folder, "GPT-2")
    PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer()).save_pretrained(folder)
    dump(folder, random_ids(), out)
    assert (out / "exported/tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    config = json.loads(run(METAFORMER, "config", "import", folder, "--json"))
    assert config["data"]["tokenizer"] == {"kind": "pretrained", "path": str(folder)}
    assert config["train"]["init_from"] == str(folder)
    return "written as it was read"


SMALL = {"layers": 2, "heads": 2, "width": 16, "context": 16, "mixer": "scaled_dot_product"}
RUNS = {
    "a run of GPT-2 without biases": {**SMALL, "feed_forward": {"activation": "gelu_tanh"}},
    "a run of GPT-2 with biases, untied": {**SMALL, "bias": True, "embedding": {"tie": False}},
    "a run of LLaMA": {**SMALL, "norm": "rms_norm", "feed_forward": "gated", "positions": "rotary"},
    "a run of LLaMA with heads that share keys": {
        **SMALL, "heads": 4, "mixer": {"kind": "scaled_dot_product", "key_value_heads": 2}, "norm": "rms_norm",
        "feed_forward": "gated", "positions": "rotary"},
    "a run of LLaMA, untied, with another base": {
        **SMALL, "norm": {"kind": "rms_norm", "epsilon": 1e-3}, "feed_forward": {"kind": "gated", "ratio": 2},
        "positions": {"kind": "rotary", "base": 500}, "embedding": {"tie": False}},
}


def check_run(root, name):
    tokenizer = byte_level_tokenizer()
    tokenizer.save(str(root / "tokenizer.json"))
    pretrained.train_run(METAFORMER, root, (LINES[0] + "\n") * 60, RUNS[name],
                         {"kind": "pretrained", "path": "tokenizer.json"}, steps=3, batch_size=2)
    for kind in ("huggingface", "safetensors"):
        run(METAFORMER, "export", "--run", "run", "--format", kind, "--out", kind, cwd=root)
    ids = torch.randint(tokenizer.get_vocab_size(), (2, 16), generator=torch.Generator().manual_seed(3))
    weights = load_file(root / "safetensors/model.safetensors")
    with safe_open(root / "safetensors/model.safetensors", "pt") as file:
        metadata = file.metadata()
    expected = reference_model.forward(json.loads(metadata["config"]), {n: w.double() for n, w in weights.items()}, ids)
    difference = largest_difference(logits_there(root / "huggingface", ids), expected)
    saved_weights = load_file(root / "run/checkpoints/best/model.safetensors")
    assert set(saved_weights) == set(weights) and all(saved_weights[n].equal(w) for n, w in weights.items())
    assert metadata["step"] == "3"
    run(METAFORMER, "config", "import", "huggingface", "--out", "again.yaml", cwd=root)
    assert (root / "again.yaml").read_text() == run(METAFORMER, "config", "import", "huggingface", cwd=root)
    run(METAFORMER, "train", "--config", "again.yaml", *sets(
        "data.path=text.txt", "train.steps=1", "train.batch_size=2", "train.learning_rate=1e-30",
        "train.optimizer.weight_decay=0", "train.schedule=constant"), "--out", "again", "--quiet", cwd=root)
    again = load_file(root / "again/checkpoints/last/model.safetensors")
    assert all(largest_difference(again[n], w) < 1e-20 for n, w in weights.items()), "other weights come back"
    # The library rotates and normalises LLaMA's vectors in float32.
    assert difference <= (1e-12 if "GPT-2" in name else TOLERANCE), f"logits differ by {difference:.1e}"
    return f"logits differ by {difference:.1e}"


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    config.update(values)
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def repeat_name(path):
    """Writes the description of a tensor twice."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8:8 + length].decode().rstrip(), content[8 + length:]
    entry = json.dumps(json.loads(header)["transformer.wte.weight"])
    header = f'{{"transformer.wte.weight":{entry},{header[1:]}'.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + rest)


def config_with(**values):
    """A damage that gives other values to keys of the config."""
    return lambda folder: change_config(folder, **values)


def add_tokenizer(folder):
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))


# {name: the model, the damage to its folder, and a part of the message}; the exit code is 3.
DAMAGES = {
    "no config": ("GPT-2", lambda f: (f / "config.json").unlink(), "config.json"),
    "a config that is no JSON": ("GPT-2", lambda f: (f / "config.json").write_text("{"), "config.json: not a JSON object"),
    "no model type": ("GPT-2", config_with(model_type="absent"), "model_type is missing"),
    "an unknown model type": ("GPT-2", config_with(model_type="bert"), 'model_type is "bert"; only gpt2, llama or metaformer is supported'),
    "no weights": ("GPT-2", lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
    "truncated weights": ("GPT-2", lambda f: truncate(f / "model.safetensors"), "not a valid safetensors file"),
    "weights that are no safetensors": ("GPT-2", lambda f: (f / "model.safetensors").write_bytes(b"\x80\x02 a pickle"),
                                        "not a valid safetensors file"),
    "a damaged shard": ("GPT-2 in several files", lambda f: truncate(next(f.glob("model-00001*"))), "model-00001"),
    "a name that occurs twice": ("GPT-2", lambda f: repeat_name(f / "model.safetensors"), "'transformer.wte.weight'"),
    "a shard is missing": ("GPT-2 in several files", lambda f: next(f.glob("model-00001*")).unlink(), "model-00001"),
    "an index of another folder": (
        "GPT-2 in several files",
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x"}}'), 'weight_map: "../x"'),
    "a wrong shape": ("LLaMA", config_with(num_hidden_layers=2, intermediate_size=48),
                      "'model.layers.0.mlp.gate_proj.weight' has shape [40, 24], and the config needs [48, 24]"),
    "a missing tensor": ("GPT-2", config_with(n_layer=3), "'transformer.h.2.ln_1.weight'"),
    "a tensor too many": ("GPT-2", config_with(n_layer=1), "'transformer.h.1.attn.c_attn.bias'"),
    "a head that is not tied": ("GPT-2, untied, with another activation, hidden width and epsilon",
                                config_with(tie_word_embeddings=True), "tie_word_embeddings"),
    "an odd hidden width": ("LLaMA", config_with(intermediate_size=41), "intermediate_size is 41"),
    "scaled positions": ("LLaMA", config_with(rope_scaling={"rope_type": "linear", "factor": 2.0}), "rope_scaling is {"),
    "another head width": ("LLaMA", config_with(head_dim=8), "head_dim is 8; only 4"),
    "biases of attention only": ("LLaMA", config_with(attention_bias=True), "mlp_bias is false"),
    "an unknown activation": ("GPT-2", config_with(activation_function="tanh"), 'activation_function is "tanh"'),
    "scores by layer": ("GPT-2", config_with(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is true"),
    "an unknown key": ("GPT-2", config_with(attention_sinks=4), "attention_sinks is 4"),
    "weights in another form": ("LLaMA", config_with(quantization_config={"bits": 4}), "quantization_config is"),
    "a window": ("LLaMA", config_with(sliding_window=16), "sliding_window is 16"),
    "a number beyond those of a config": ("GPT-2", config_with(resid_pdrop=1.0), "config.json: model.dropout: 1 "),
    "an epsilon of 0": ("LLaMA", config_with(rms_norm_eps=0.0), "config.json: model.norm.epsilon: 0 "),
    "a broken description of the tokenizer": (
        "GPT-2", lambda f: [add_tokenizer(f), (f / "tokenizer_config.json").write_text("[")], "tokenizer_config.json: "),
    "heads that do not divide the width": ("GPT-2", config_with(n_head=5), "n_head is 5"),
    "a wrong type": ("GPT-2", config_with(n_layer="two"), 'n_layer is "two"'),
    "broken merges": ("GPT-2", lambda f: [(f / "vocab.json").write_text("{}"), (f / "merges.txt").write_text("a b c\n")],
                      "merges.txt:1: 'a b c'"),
    "a tokenizer with more tokens": ("GPT-2", lambda f: [add_tokenizer(f), change_config(f, vocab_size=280)],
                                     "281 tokens, and vocab_size is 280"),
}


def check_damage(root, name):
    model, damage, message = DAMAGES[name]
    saved(root / "saved", model)
    damage(root / "saved")
    said = dump(root / "saved", random_ids(), root / "out", code=3)
    assert message in said and len(said.splitlines()) == 1, said
    return said.strip().replace(str(root), "")


HARMLESS = {"_num_labels": 1, "output_past": True, "max_sequence_length": 2048, "unsloth_version": "2025.1", "_flash_attn_2_enabled": True,
            "unsloth_fixed": True, "tie_encoder_decoder": False, "is_decoder": False, "finetuned_from": "x", "model_max_length": 20}


def check_harmless_keys(root, name):
    """Keys without effect on the model are ignored, and those that no configuration has are named in one line."""
    folder = root / "saved"
    saved(folder, name)
    before = run(METAFORMER, "config", "import", folder)
    change_config(folder, **HARMLESS)
    result = subprocess.run([METAFORMER, "config", "import", folder], capture_output=True, text=True)
    lines = [line for line in result.stderr.splitlines() if "no tokenizer" not in line]
    assert result.returncode == 0 and result.stdout == before, result.stderr
    assert len(lines) == 1 and all(key in lines[0] for key in list(HARMLESS)[:6]), result.stderr
    dump(folder, random_ids(), root / "out")
    return lines[0].replace(str(root), "")


def check_what_is_imported():
    """`config check` accepts every config that `config import` writes, for numbers at the limits of models."""
    changes = {"GPT-2": [{"n_inner": 1}, {"n_inner": 24 * 64 + 1}, {"n_positions": 1 << 21}, {"n_head": 24}, {"resid_pdrop": 0.999},
                         {"layer_norm_epsilon": 1.5}, {"layer_norm_epsilon": 1e-30}, {"n_layer": 1025}, {"vocab_size": 1}],
               "LLaMA": [{"rope_theta": 1.0}, {"rope_theta": 1e9}, {"max_position_embeddings": 1 << 30}, {"num_attention_heads": 24},
                         {"num_attention_heads": 8}, {"rms_norm_eps": 1.0}, {"intermediate_size": 8}, {"num_hidden_layers": 5000}]}
    accepted = 0
    for name in changes:
        for change in changes[name]:
            with tempfile.TemporaryDirectory(prefix="a {seed}: #b") as root:
                folder = Path(root) / "saved"
                saved(folder, name)
                change_config(folder, **change)
                result = subprocess.run([METAFORMER, "config", "import", folder, "--out", "c.yaml"], capture_output=True, text=True, cwd=root)
                assert result.returncode in (0, 3) and (result.returncode == 0) == (Path(root) / "c.yaml").exists(), (change, result.stderr)
                if result.returncode == 0:
                    run(METAFORMER, "config", "check", "c.yaml", cwd=root)
                    accepted += 1
    return f"{accepted} of {sum(map(len, changes.values()))} are imported, and checked"


if __name__ == "__main__":
    logging.disable_progress_bar()
    run_cases({**{name: in_folder(check_model, name) for name in MODELS},
               "a tokenizer": in_folder(check_tokenizer),
               **{name: in_folder(check_run, name) for name in RUNS},
               **{f"harmless keys of {name}": in_folder(check_harmless_keys, name) for name in ("GPT-2", "LLaMA")},
               "configs of imported models": check_what_is_imported,
               **{f"damaged: {name}": in_folder(check_damage, name) for name in DAMAGES}})
