"""Models and tokenizers that `transformers` saves, read here: logits and ids. What we write of them reads back as it was, here
and there. Trained runs that we export have the same logits there. Folders that are damaged or describe another model are an
error.

usage: compare_pretrained.py DUMP_PRETRAINED METAFORMER
"""
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig,  # noqa: E402
                          LlamaForCausalLM, PreTrainedTokenizerFast, logging)

from common import run_cases  # noqa: E402
from compare_transformers import their_logits  # noqa: E402

TOLERANCE = 1e-5  # of logits about as large as 1, ours in float32 against float64
DUMP, METAFORMER = (Path(argument).resolve() for argument in sys.argv[1:3])
VOCABULARY = 300
GPT2_SIZES = {"vocab_size": VOCABULARY, "n_positions": 20, "n_embd": 24, "n_layer": 2, "n_head": 3}
LLAMA_SIZES = {"vocab_size": VOCABULARY, "max_position_embeddings": 20, "hidden_size": 24, "intermediate_size": 40,
               "num_hidden_layers": 2, "num_attention_heads": 6}

# By name: the class, its config, and how it is saved.
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


def random_model(kind, config):
    """With weights that all matter: norms near one, biases and all else far from zero."""
    torch.manual_seed(5)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def random_ids():
    return torch.randint(VOCABULARY, (3, 20), generator=torch.Generator().manual_seed(7))


def logits_there(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.double().eval()(ids, use_cache=False).logits.detach()


def largest_difference(a, b):
    return (a.double() - b.double()).abs().max().item()


def dump(folder, ids, out):
    save_file({"ids": ids}, out.with_suffix(".ids"))
    return subprocess.run([DUMP, folder, out.with_suffix(".ids"), out], capture_output=True, text=True)


def saved(folder, name):
    kind, config, how = MODELS[name]
    model = random_model(kind, config).to(how.get("type", torch.float32))
    part = getattr(model, how["part"]) if "part" in how else model
    part.save_pretrained(folder, max_shard_size=how.get("max_shard_size", "1GB"))
    if "more" in how:
        change_tensors(folder, lambda tensors: tensors.update(how["more"](tensors)))


def check_model(name):
    with tempfile.TemporaryDirectory() as root:
        folder, out, ids = Path(root) / "saved", Path(root) / "out", random_ids()
        saved(folder, name)
        result = dump(folder, ids, out)
        assert result.returncode == 0, result.stderr
        theirs = logits_there(folder, ids)
        read = largest_difference(load_file(out / "logits.safetensors")["logits"], theirs)
        written = largest_difference(logits_there(out / "exported", ids), theirs)
    assert theirs.abs().max() > 0.3, "logits are too small to compare"
    assert read <= TOLERANCE and written <= 1e-12, f"logits differ by {read:.1e} as read, {written:.1e} as written"
    return f"logits of at most {theirs.abs().max():.1f} differ by {read:.1e} as read, {written:.1e} as written"


def byte_level_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer.train_from_iterator(["to be, or not to be: that is the question"] * 3, trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    end = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", end)])
    return tokenizer


def check_tokenizer():
    """A folder with a tokenizer of fewer tokens than the model has, and what we export of both."""
    text = "To be, or not\n\tto be<|endoftext|> \u81ea\u7136 1984 "
    with tempfile.TemporaryDirectory() as root:
        folder, out = Path(root) / "saved", Path(root) / "out"
        saved(folder, "GPT-2")
        PreTrainedTokenizerFast(tokenizer_object=byte_level_tokenizer()).save_pretrained(folder)
        result = dump(folder, random_ids(), out)
        assert result.returncode == 0, result.stderr
        written, read = AutoTokenizer.from_pretrained(out / "exported"), AutoTokenizer.from_pretrained(folder)
        assert written(text)["input_ids"] == read(text)["input_ids"]
        assert (out / "exported/tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
        config = json.loads(run(["config", "import", folder, "--json"]))
    assert config["data"]["tokenizer"] == {"kind": "pretrained", "path": str(folder)}
    assert config["train"]["init_from"] == str(folder)
    return "written as it was read"


def run(arguments, folder=None):
    result = subprocess.run([METAFORMER, *arguments], capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


SMALL = {"layers": 2, "heads": 2, "width": 16, "context": 16}
RUNS = {
    "a run of GPT-2 without biases": {**SMALL, "mixer": "scaled_dot_product", "feed_forward": {"activation": "gelu_tanh"}},
    "a run of GPT-2 with biases, untied": {**SMALL, "mixer": "scaled_dot_product", "bias": True, "embedding": {"tie": False}},
    "a run of LLaMA": {**SMALL, "mixer": "scaled_dot_product", "norm": "rms_norm", "feed_forward": "gated", "positions": "rotary"},
    "a run of LLaMA, untied, with another base": {
        **SMALL, "mixer": "scaled_dot_product", "norm": {"kind": "rms_norm", "epsilon": 1e-3}, "feed_forward": {"kind": "gated", "ratio": 2},
        "positions": {"kind": "rotary", "base": 500}, "embedding": {"tie": False}},
}


def train(root, model, **data):
    (root / "text.txt").write_text("to be, or not to be: that is the question\n" * 60)
    config = {"data": {"path": "text.txt", **data}, "model": model,
              "train": {"steps": 3, "batch_size": 2, "eval_interval": 3, "checkpoint_interval": 3, "learning_rate": 0.01,
                        "schedule": {"warmup_steps": 0}}}
    (root / "small.yaml").write_text(json.dumps(config))
    run(["train", "--config", "small.yaml", "--out", "run", "--quiet"], root)


def with_biases(weights):
    """In float64; biases that only the library's GPT-2 has are zero."""
    biases = {name.removesuffix("weight") + "bias": torch.zeros(len(weight)).double() for name, weight in weights.items()}
    return biases | {name: weight.double() for name, weight in weights.items()}


def check_run(name):
    with tempfile.TemporaryDirectory() as name_of_root:
        root = Path(name_of_root)
        tokenizer = byte_level_tokenizer()
        tokenizer.save(str(root / "tokenizer.json"))
        train(root, RUNS[name], tokenizer={"kind": "pretrained", "path": "tokenizer.json"})
        for kind in ("huggingface", "safetensors"):
            run(["export", "--run", "run", "--format", kind, "--out", kind], root)
        ids = torch.randint(tokenizer.get_vocab_size(), (2, 16), generator=torch.Generator().manual_seed(3))
        weights = load_file(root / "safetensors/model.safetensors")
        with safe_open(root / "safetensors/model.safetensors", "pt") as file:
            metadata = file.metadata()
        expected = their_logits(json.loads(metadata["config"]), with_biases(weights), ids, None)
        difference = largest_difference(logits_there(root / "huggingface", ids), expected)
        saved_weights = load_file(root / "run/checkpoints/best/model.safetensors")
        assert set(saved_weights) == set(weights) and all(saved_weights[n].equal(w) for n, w in weights.items())
        assert metadata["step"] == "3"
        theirs = AutoTokenizer.from_pretrained(root / "huggingface")
        encoded = json.loads(run(["data", "tokenizer", "--config", "small.yaml", "--encode", "to be <|endoftext|>\n", "--json"], root))
        assert theirs("to be <|endoftext|>\n", add_special_tokens=False)["input_ids"] == [token["id"] for token in encoded["encoded"]]
    assert difference <= 1e-12, f"logits differ by {difference:.1e}"
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
    """The description of a tensor stands there twice."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8:8 + length].decode().rstrip(), content[8 + length:]
    entry = json.dumps(json.loads(header)["transformer.wte.weight"])
    header = f'{{"transformer.wte.weight":{entry},{header[1:]}'.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + rest)


# By name: the model, what happens to its folder, the exit code and a part of the message.
DAMAGES = {
    "no config": ("GPT-2", lambda f: (f / "config.json").unlink(), 3, "config.json"),
    "a config that is no JSON": ("GPT-2", lambda f: (f / "config.json").write_text("{"), 3, "config.json: not a JSON object"),
    "no model type": ("GPT-2", lambda f: change_config(f, model_type="absent"), 3, "model_type is missing"),
    "an unknown model type": ("GPT-2", lambda f: change_config(f, model_type="bert"), 3,
                              'model_type is "bert"; only gpt2 or llama is supported'),
    "no weights": ("GPT-2", lambda f: (f / "model.safetensors").unlink(), 3, "has neither model.safetensors nor"),
    "truncated weights": ("GPT-2", lambda f: truncate(f / "model.safetensors"), 3, "not a valid safetensors file"),
    "weights that are no safetensors": ("GPT-2", lambda f: (f / "model.safetensors").write_bytes(b"\x80\x02 a pickle"), 3,
                                        "not a valid safetensors file"),
    "a damaged shard": ("GPT-2 in several files", lambda f: truncate(next(f.glob("model-00001*"))), 3, "not a valid safetensors file"),
    "a name that occurs twice": ("GPT-2", lambda f: repeat_name(f / "model.safetensors"), 3, "two tensors have the name 'transformer.wte.weight'"),
    "a shard is missing": ("GPT-2 in several files", lambda f: next(f.glob("model-00001*")).unlink(), 3, "model-00001"),
    "an index of another folder": ("GPT-2 in several files",
                                   lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x"}}'),
                                   3, 'weight_map: "../x" is no file of this folder'),
    "a wrong shape": ("LLaMA", lambda f: change_config(f, num_hidden_layers=2, intermediate_size=48), 3,
                      "'model.layers.0.mlp.gate_proj.weight' has shape [40, 24], and the config needs [48, 24]"),
    "a missing tensor": ("GPT-2", lambda f: change_config(f, n_layer=3), 3, "has no tensor 'transformer.h.2.ln_1.weight'"),
    "a tensor too many": ("GPT-2", lambda f: change_config(f, n_layer=1), 3, "its tensor 'transformer.h.1.attn.c_attn.bias' is not part of"),
    "a head that is not tied": ("GPT-2, untied, with another activation, hidden width and epsilon",
                                lambda f: change_config(f, tie_word_embeddings=True), 3, "is not the embeddings, and tie_word_embeddings"),
    "an odd hidden width": ("LLaMA", lambda f: change_config(f, intermediate_size=41), 3, "intermediate_size is 41; it must be a multiple of 8"),
    "scaled positions": ("LLaMA", lambda f: change_config(f, rope_scaling={"rope_type": "linear", "factor": 2.0}), 3,
                         'rope_scaling is {"factor":2.0,"rope_type":"linear"}; only'),
    "another head width": ("LLaMA", lambda f: change_config(f, head_dim=8), 3, "head_dim is 8; only 4 is supported"),
    "biases of attention only": ("LLaMA", lambda f: change_config(f, attention_bias=True), 3, "mlp_bias is false; here all linear layers"),
    "an unknown activation": ("GPT-2", lambda f: change_config(f, activation_function="tanh"), 3, 'activation_function is "tanh"'),
    "scores by layer": ("GPT-2", lambda f: change_config(f, scale_attn_by_inverse_layer_idx=True), 3,
                        "scale_attn_by_inverse_layer_idx is true; only false is supported"),
    "an unknown key": ("GPT-2", lambda f: change_config(f, attention_sinks=4), 3, "attention_sinks is 4; this key is unknown"),
    "weights in another form": ("LLaMA", lambda f: change_config(f, quantization_config={"bits": 4}), 3, "quantization_config is"),
    "a window": ("LLaMA", lambda f: change_config(f, sliding_window=16), 3, "sliding_window is 16; this key is unknown"),
    "a number beyond those of a config": ("GPT-2", lambda f: change_config(f, resid_pdrop=1.0), 3,
                                          "config.json: model.dropout: 1 is out of range"),
    "an epsilon of 0": ("LLaMA", lambda f: change_config(f, rms_norm_eps=0.0), 3, "config.json: model.norm.epsilon: 0 is out of range"),
    "a broken description of the tokenizer": ("GPT-2", lambda f: [byte_level_tokenizer().save(str(f / "tokenizer.json")), (f / "tokenizer_config.json").write_text("[")], 3,
                                              "tokenizer_config.json: not a JSON object"),
    "heads that do not divide the width": ("GPT-2", lambda f: change_config(f, n_head=5), 3, "n_head is 5; it must divide n_embd"),
    "a wrong type": ("GPT-2", lambda f: change_config(f, n_layer="two"), 3, 'n_layer is "two"; expected a whole number above 0'),
    "broken merges": ("GPT-2", lambda f: [(f / "vocab.json").write_text("{}"), (f / "merges.txt").write_text("a b c\n")], 3,
                      "merges.txt:1: 'a b c' is not two tokens"),
    "a tokenizer with more tokens": ("GPT-2", lambda f: [byte_level_tokenizer().save(str(f / "tokenizer.json")), change_config(f, vocab_size=280)], 3,
                                     "its tokenizer has 281 tokens, and vocab_size is 280"),
}


def check_damage(name):
    model, damage, code, message = DAMAGES[name]
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "saved"
        saved(folder, model)
        damage(folder)
        result = dump(folder, random_ids(), Path(root) / "out")
    found = f"exit code {result.returncode}: {result.stderr.strip()}"
    assert result.returncode == code and message in result.stderr and len(result.stderr.splitlines()) == 1, found
    return result.stderr.strip().replace(root, "")


HARMLESS = {"_num_labels": 1, "output_past": True, "max_sequence_length": 2048, "unsloth_version": "2025.1", "_flash_attn_2_enabled": True,
            "unsloth_fixed": True, "tie_encoder_decoder": False, "is_decoder": False, "finetuned_from": "x", "model_max_length": 20}


def check_harmless_keys(name):
    """Keys that mean nothing to a model are ignored, and those that no configuration has are named in one line."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "saved"
        saved(folder, name)
        before = run(["config", "import", folder])
        change_config(folder, **HARMLESS)
        result = subprocess.run([METAFORMER, "config", "import", folder], capture_output=True, text=True)
        lines = [line for line in result.stderr.splitlines() if "no tokenizer" not in line]
        assert result.returncode == 0 and result.stdout == before, result.stderr
        assert len(lines) == 1 and all(key in lines[0] for key in list(HARMLESS)[:6]), result.stderr
        assert dump(folder, random_ids(), Path(root) / "out").returncode == 0
    return lines[0].replace(root, "")


def check_what_is_imported():
    """Whatever config `config import` prints, `config check` accepts: numbers at the edges of what models may have."""
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
                    run(["config", "check", "c.yaml"], root)
                    accepted += 1
    return f"{accepted} of {sum(map(len, changes.values()))} are imported, and checked"


def main():
    logging.disable_progress_bar()
    cases = {name: functools.partial(check_model, name) for name in MODELS}
    cases["a tokenizer"] = check_tokenizer
    cases |= {name: functools.partial(check_run, name) for name in RUNS}
    cases |= {f"harmless keys of {name}": functools.partial(check_harmless_keys, name) for name in ("GPT-2", "LLaMA")}
    cases["configs of imported models"] = check_what_is_imported
    cases |= {f"damaged: {name}": functools.partial(check_damage, name) for name in DAMAGES}
    run_cases(cases)


if __name__ == "__main__":
    main()
