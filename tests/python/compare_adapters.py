"""Trains low-rank adapters of models of `transformers` (train.lora) and loads the exported adapters with the package `peft`: base
and adapter together give the logits of the exported merged model and, merged by `peft`, its weights.

usage: compare_adapters.py METAFORMER
"""
import json
import sys
from pathlib import Path

import torch

import pretrained  # before transformers, which must stay offline
from peft import PeftModel
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          PreTrainedTokenizerFast, logging)

from common import in_folder, run, run_cases, sets

TOLERANCE = 1e-5  # of logits, as a fraction of the largest
METAFORMER = Path(sys.argv[1]).resolve()
GPT2_SIZES = {**pretrained.GPT2_SIZES, "n_positions": 20}
LLAMA_SIZES = {**pretrained.LLAMA_SIZES, "max_position_embeddings": 20}
LINES = ["to be, or not to be: that is the question"]

# {name: the class and its config, train.lora, other changes of the config, the number of adapted layers of the library}
CASES = {
    "GPT-2, all mixers": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES), {"rank": 3}, [], 4),
    "GPT-2, all matrices": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES, tie_word_embeddings=False),
                            {"rank": 2, "alpha": 4.5, "targets": ["mixer", "feed_forward"]}, [], 8),
    "GPT-2, averaged weights": (GPT2LMHeadModel, GPT2Config(**GPT2_SIZES), {"rank": 3}, ["train.weight_average.decay=0.9"], 4),
    "LLaMA, queries, keys and values": (LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES),
                                        {"rank": 4, "alpha": 16, "targets": ["mixer.query_key_value"]}, [], 6),
    "LLaMA with grouped queries, all matrices": (
        LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES, num_key_value_heads=2),
        {"rank": 2, "targets": ["mixer", "feed_forward"]}, ["train.optimizer=muon"], 14),
    "LLaMA with biases, one block": (
        LlamaForCausalLM, LlamaConfig(**LLAMA_SIZES, num_key_value_heads=1, attention_bias=True, mlp_bias=True),
        {"rank": 2, "targets": ["transformer.blocks.1.feed_forward"]}, [], 3),
}


def largest_difference(a, b):
    return (a.double() - b.double()).abs().max().item()


def logits_of(model, ids):
    """Logits of the tokens that the tokenizer has; models of the library may have more rows."""
    with torch.no_grad():
        return model.eval()(ids, use_cache=False).logits[..., :256]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def train(root, kind, config, lora, changes):
    pretrained.random_model(kind, config).save_pretrained(root / "base")
    tokenizer = pretrained.byte_level_tokenizer(LINES, 290, "<|endoftext|>")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(root / "base")
    (root / "text.txt").write_text((LINES[0] + "\n") * 60, newline="")
    run(METAFORMER, "config", "import", "base", "--out", "base.yaml", cwd=root)
    run(METAFORMER, "train", "--config", "base.yaml", "--out", "run", "--quiet",
        *sets("data.path=text.txt", f"train.lora={json.dumps(lora)}", "train.steps=20", "train.batch_size=4",
              "train.learning_rate=0.01", "train.schedule.warmup_steps=0", "train.eval_interval=20", *changes), cwd=root)
    for form, out in (("peft", "adapter"), ("huggingface", "merged")):
        run(METAFORMER, "export", "--run", "run", "--checkpoint", "last", "--format", form, "--out", out, cwd=root)


def check(root, name):
    kind, config, lora, changes, layers = CASES[name]
    train(root, kind, config, lora, changes)
    ids = torch.randint(256, (3, 20), generator=torch.Generator().manual_seed(7))
    base, merged = load(root / "base"), load(root / "merged")
    expected, before = logits_of(merged, ids), logits_of(base, ids)
    size, changed = expected.abs().max().item(), largest_difference(expected, before)
    assert changed > 0.01 * size, f"training has changed logits of {size:.1f} by only {changed:.1e}"
    settings = json.loads((root / "adapter/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(root / "base"), settings
    assert len(settings["target_modules"]) == layers, settings["target_modules"]
    adapted = PeftModel.from_pretrained(base, root / "adapter")
    found = largest_difference(logits_of(adapted, ids), expected)
    assert found <= TOLERANCE * max(size, 1), f"logits of {size:.1f} differ by {found:.1e}"
    theirs, ours = adapted.merge_and_unload().state_dict(), merged.state_dict()
    adapted_weights = [f"{layer}.weight" for layer in settings["target_modules"]]
    weights = max(largest_difference(theirs[key], ours[key]) for key in adapted_weights)
    assert weights <= 1e-6, f"weights differ by {weights:.1e}"
    return f"logits of {size:.1f}, changed by {changed:.2f}, differ by {found:.1e}, merged weights by {weights:.1e}"


if __name__ == "__main__":
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    run_cases({name: in_folder(check, name) for name in CASES})
