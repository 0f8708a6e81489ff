"""Loads models and tokenizers that `export` writes with `transformers`: AutoTokenizer gives every text the ids of this program, for
every kind of tokenizer and both forms of model; `model(**tok(text))` and `generate(**tok(text))` work, with the same results after
an import and an export.

usage: compare_exported.py ENCODE_TEXT METAFORMER
"""
import functools
import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import pretrained  # before transformers, which must stay offline
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, PreTrainedTokenizerFast, logging)

from common import in_folder, run, run_cases, sets
from mixed_text import characters, mixed_text
from pretrained import VOCABULARY, with_start

ENCODE_TEXT, METAFORMER = (Path(argument).resolve() for argument in sys.argv[1:3])

LINES = ["To be, or not to be: that is the question.", "Don't   stop -- don't EVER stop!", "e-mail 8/10 \u00bd caf\u00e9 CAF\u00c9 \u201cdon\u2019t\u201d",
         "\u0391\u03a3 \u039f\u0394\u039f\u03a3 \u03bf\u03b4\u03cc\u03c2 \u0130stanbul Stra\u00dfe", "def f(x):\n    return x  # <b>\n\tpass", "\u6f22\u5b57 \U0001f44d "]
TEXT = "\n".join(LINES * 40) + "\n"
NASTY = ["", " ", "  ", "a", " a", "a ", "  a  b  ", "\n", "\t", "\r\n", " \n ", "\n\n\n", "a\tb", "e\u0301", "\u00e9", "\U0001f44d\U0001f3fd",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u200d", "\ufeff", "\ufeffabc", "a\u00a0b", "a\u2003b", "x\u200by", "\u2028", "\u201cdon\u2019t\u201d",
         "don't", "'tis", "rock-'n'-roll", "8/10", "1,000.5", "\u00bd", "\u2167", "\u00df", "\u1e9e", "\u0130", "\u0391\u03a3", "\u0391\u03a3.\u0392",
         "\u039f\u0394\u039f\u03a3 \u03a3\u0391\u03a3 \u03a3", "\u0391\u03a3\u0301", "\ua7cbx\ua7cb", "\u01c5", "\U0001d49c", "\u6f22\u5b57\u304b\u306a",
         "\u0645\u0631\u062d\u0628\u0627", "\u0939\u093f\u0928\u094d\u0926\u0940", "\0", "\x01\x02", "\x7f", "\x1b[0m", "<unk>", "<s>", "</s>", "<|endoftext|>",
         "[CLS] a [SEP]", "<0x41>", "<0x0A>", "a<0x41>b", "\u2581", "\u2581\u2581a \u2581", "\u0120", "##a", "\uffff", "\ufffd", "\U0010ffff", "....", "-----",
         "!!!!!!!", "a" * 100, " " * 50, "\n" * 20, "\ufb01", "\u212b", "\u0345", "\u24b6", "_", "C++", "\\n", "\u201c\u201d\u2026", "'", "--"]

TOKENIZERS = {
    "character": {"kind": "character"},
    "byte": {"kind": "byte"},
    "word": {"kind": "word", "min_count": 1},
    "word, case kept, other joiners": {"kind": "word", "vocabulary": 30, "lowercase": False, "joiners": "-/"},
    "bpe": {"kind": "bpe", "vocabulary": 420},
    "unigram": {"kind": "unigram", "vocabulary": 400},
    "pretrained": {"kind": "pretrained", "path": "tokenizer.json"},
}
SMALL = {"layers": 1, "heads": 2, "width": 16, "context": 32, "mixer": "scaled_dot_product"}
FORMS = {"GPT-2": SMALL, "custom code": {**SMALL, "mixer": "metric"},
         "LLaMA": {**SMALL, "norm": "rms_norm", "feed_forward": "gated", "positions": "rotary"}}


metaformer = functools.partial(run, METAFORMER)


def nasty_texts():
    """NASTY, runs of one character, which may be cut in several ways, and mixed text."""
    runs = [character * length for character in ".-a!=\u03a3' " for length in range(2, 24)]
    return NASTY + runs + [mixed_text(20000, seed, LINES) for seed in range(2)] + ["".join(characters())]


def ids_or_none(encode, text):
    try:
        return encode(text)
    except Exception:  # any error of the library for a text that it refuses
        return None


def byte_level_tokenizer(*special_tokens):
    return pretrained.byte_level_tokenizer(LINES, 280 + len(special_tokens), *special_tokens)


def train_and_export(root, model, tokenizer):
    byte_level_tokenizer("<|endoftext|>").save(str(root / "tokenizer.json"))
    pretrained.train_run(METAFORMER, root, TEXT, model, tokenizer, steps=30, batch_size=4)
    metaformer("export", "--run", "run", "--out", "exported", cwd=root)


def our_ids(root, run_name, texts):
    """The ids of each text, or None if it is refused."""
    encoded = run(ENCODE_TEXT, root / run_name / "checkpoints/best/tokenizer.json", text=json.dumps(texts))
    return [ids if isinstance(ids, list) else None for ids in json.loads(encoded)]


def sampled(root, *options):
    return json.loads(metaformer("sample", "--run", "run", "--prompt", "To be", "--json", *options, cwd=root))


def check_tokenizer(root, kind, form):
    train_and_export(root, FORMS[form], TOKENIZERS[kind])
    # The library's own files keep a byte order mark at the start of a text, as the library does.
    texts = [text for text in nasty_texts() if kind != "pretrained" or not text.startswith("\ufeff")]
    ours = our_ids(root, "run", texts)
    fast = AutoTokenizer.from_pretrained(root / "exported")
    bare = Tokenizer.from_file(str(root / "exported/tokenizer.json"))
    for text, ids in zip(texts, ours):
        theirs = ids_or_none(lambda t: fast(t)["input_ids"], text)
        assert theirs == ids, f"{text[:40]!r}: {ids and ids[:20]} here, {theirs and theirs[:20]} there"
        assert ids_or_none(lambda t: bare.encode(t, add_special_tokens=False).ids, text) == ids, f"{text[:40]!r}"
    model = AutoModelForCausalLM.from_pretrained(root / "exported", trust_remote_code=True).eval()
    assert len(fast) <= model.config.vocab_size, f"{len(fast)} tokens, {model.config.vocab_size} rows"
    for config in (model.config, model.generation_config):
        assert config.eos_token_id is None and config.bos_token_id is None and config.pad_token_id is None, config
    assert fast.eos_token is None and fast.bos_token is None
    inputs = fast("To be", return_tensors="pt")
    assert set(inputs) == {"input_ids", "attention_mask"}, set(inputs)
    written = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1]:]
    here = sampled(root, "--tokens", 12, "--temperature", 0)["text"]
    assert "\ufffd" in here or fast.decode(written) == here, (fast.decode(written), here)
    # The export can be imported with its tokenizer.
    metaformer("config", "import", "exported", "--out", "again.yaml", cwd=root)
    metaformer("train", "--config", "again.yaml", *sets("data.path=text.txt", "train.steps=1", "train.batch_size=2"),
               "--out", "again", "--quiet", cwd=root)
    assert our_ids(root, "again", texts) == ours
    accepted = sum(ids is not None for ids in ours)
    return f"{accepted} of {len(texts)} texts have the same ids, the others are refused by both; {here!r}"


def check_lower_case(root):
    """The library has no such tokenizer: `export` warns about it, and AutoTokenizer finds none."""
    train_and_export(root, SMALL, {**TOKENIZERS["unigram"], "lowercase": True})
    said = subprocess.run([METAFORMER, "export", "--run", "run", "--out", "out"], capture_output=True, text=True, cwd=root).stderr
    assert "transformers will find no tokenizer" in said and "lowercase" in said, said
    assert ids_or_none(lambda f: AutoTokenizer.from_pretrained(f), root / "out") is None
    return said.strip()


MODELS = {
    "GPT-2": (GPT2LMHeadModel, GPT2Config(**pretrained.GPT2_SIZES, n_positions=64, tie_word_embeddings=False)),
    "LLaMA": (LlamaForCausalLM, LlamaConfig(**pretrained.LLAMA_SIZES, max_position_embeddings=64)),
}


def save_model(folder, name, tokenizer, **special_ids):
    model = pretrained.random_model(*MODELS[name])
    for key, value in special_ids.items():
        setattr(model.config, key, value)
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def import_and_export(root):
    """Imports, trains and exports a model; the training changes nothing."""
    (root / "text.txt").write_text(TEXT, newline="")
    metaformer("config", "import", "saved", "--out", "saved.yaml", cwd=root)
    metaformer("train", "--config", "saved.yaml",
               *sets("data.path=text.txt", "train.steps=1", "train.batch_size=1", "train.learning_rate=1e-20"),
               "--out", "run", "--quiet", cwd=root)
    metaformer("export", "--run", "run", "--out", "exported", cwd=root)


def fast_tokenizer(tokenizer, **tokens):
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)


# {name: the tokenizer and the special ids of the model}
SPECIAL = {
    "one token for all": lambda: (
        fast_tokenizer(byte_level_tokenizer("<|endoftext|>"), bos_token="<|endoftext|>", eos_token="<|endoftext|>",
                       unk_token="<|endoftext|>"), {"bos_token_id": 0, "eos_token_id": 0}),
    "bos in front, eos, padding": lambda: (
        fast_tokenizer(with_start(byte_level_tokenizer("<s>", "</s>", "<pad>"), "<s>"), bos_token="<s>", eos_token="</s>",
                       pad_token="<pad>"), {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}),
    "two tokens end texts": lambda: (
        fast_tokenizer(byte_level_tokenizer("<s>", "</s>", "<|eot|>"), bos_token="<s>", eos_token="<|eot|>"),
        {"bos_token_id": 0, "eos_token_id": [1, 2]}),
    "none": lambda: (fast_tokenizer(byte_level_tokenizer()), {"bos_token_id": None, "eos_token_id": None}),
}


def check_round_trip(root, name, special):
    text = "To be, or not to be </s> <|endoftext|>"
    tokenizer, ids = SPECIAL[special]()
    save_model(root / "saved", name, tokenizer, **ids)
    import_and_export(root)
    found = []
    for path in (root / "saved", root / "exported"):
        tok, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path).eval()
        inputs = tok(text, return_tensors="pt", **({"return_token_type_ids": False} if path.name == "saved" else {}))
        loss = model(**inputs, labels=inputs["input_ids"]).loss.item()
        written = model.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=ids.get("pad_token_id", 0)).tolist()
        found.append([round(loss, 5), inputs["input_ids"].tolist(), written, tok.eos_token, tok.bos_token, tok.pad_token,
                      *([getattr(c, key) for c in (model.config, model.generation_config)]
                        for key in ("bos_token_id", "eos_token_id", "pad_token_id"))])
    before, after = found
    assert before == after, f"{before} before, {after} after"
    if ids.get("pad_token_id"):
        tok(["a", "to be"], padding=True)
    return f"loss {before[0]}, special tokens {before[3:]}"


def greedy(model, ids, count, **options):
    return model.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=0, **options)[0, ids.shape[1]:]


def model_without_end(root, name):
    """A saved model without an end token, its tokenizer, the ids of a prompt, and the ids without a token."""
    tokenizer = fast_tokenizer(byte_level_tokenizer())
    model = save_model(root / "saved", name, tokenizer, eos_token_id=None, bos_token_id=None)
    return model, tokenizer, torch.tensor([tokenizer("To be")["input_ids"]]), list(range(len(tokenizer), VOCABULARY))


def check_end(root, name):
    """`sample` ends at the same token as generate, and continues with --no-eos."""
    model, tokenizer, ids, unwritten = model_without_end(root, name)
    written = greedy(model, ids, 10, suppress_tokens=unwritten).tolist()
    end = next(place for place in range(1, 10) if written[place] not in written[:place])
    save_model(root / "saved", name, tokenizer, eos_token_id=written[end], bos_token_id=None)
    import_and_export(root)
    ended, endless = (sampled(root, "--tokens", 10, "--temperature", 0, *more) for more in ([], ["--no-eos"]))
    assert ended["ended"] and ended["tokens"] == end, ended
    assert not endless["ended"] and endless["tokens"] == 10, endless
    expected = tokenizer.decode(written[:end]), tokenizer.decode(written)
    assert "\ufffd" in "".join(expected) or (ended["text"], endless["text"]) == expected, (ended["text"], endless["text"], expected)
    there = greedy(AutoModelForCausalLM.from_pretrained(root / "exported").eval(), ids, 10).tolist()
    assert there == written[:end + 1], (there, written)
    return f"{end} tokens of 10"


def check_padding(root):
    """Ids without a token are never generated, even if they are the most likely ones."""
    _, tokenizer, ids, unwritten = model_without_end(root, "LLaMA")
    tensors = load_file(root / "saved/model.safetensors")
    tensors["lm_head.weight"][len(tokenizer):] *= 100
    save_file(tensors, root / "saved/model.safetensors", {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(root / "saved").eval()
    assert (greedy(model, ids, 5) >= len(tokenizer)).all()
    import_and_export(root)
    known = tokenizer.decode(greedy(model, ids, 20, suppress_tokens=unwritten))
    here = sampled(root, "--tokens", 20, "--temperature", 0)["text"]
    assert "\ufffd" in here or here == known, here
    lengths = [len(sampled(root, "--tokens", 20, *more)["text"].encode()) for more in
               (["--top-k", 0, "--temperature", 2], ["--top-p", 0.5], ["--no-cache"], ["--window", "slide"])]
    assert min(lengths) >= 20, lengths  # every token has at least a byte
    return "no token without text among 100"


def check_precision(root, name):
    """If the weights are bfloat16 numbers, `sample` gives the same text in both precisions, which is that of generate."""
    _, tokenizer, ids, unwritten = model_without_end(root, name)
    rounded = {key: weight.bfloat16() for key, weight in load_file(root / "saved/model.safetensors").items()}
    save_file(rounded, root / "saved/model.safetensors", {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(root / "saved", dtype=torch.float32).eval()
    expected = tokenizer.decode(greedy(model, ids, 20, suppress_tokens=unwritten))
    import_and_export(root)

    def texts(precision, *options):
        return sampled(root, "--tokens", 20, "--device", "cpu", "--precision", precision, *options)["samples"]

    for options in (["--temperature", 0], ["--temperature", 1, "--num-samples", 3]):
        assert texts("bf16", *options) == texts("fp32", *options), options
    here = texts("bf16", "--temperature", 0)[0]["text"]
    assert "\ufffd" in here + expected or here == expected, (here, expected)
    return f"4 texts of 20 tokens, {here!r}"


if __name__ == "__main__":
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    run_cases({
        **{f"{kind}, {form}": in_folder(check_tokenizer, kind, form) for kind in TOKENIZERS for form in FORMS
           if form != "custom code" or kind in ("byte", "bpe", "pretrained")},
        "unigram in lower case": in_folder(check_lower_case),
        **{f"{name} with special tokens: {special}": in_folder(check_round_trip, name, special)
           for name in MODELS for special in SPECIAL},
        **{f"{name} ends at eos": in_folder(check_end, name) for name in MODELS},
        "a padded vocabulary": in_folder(check_padding),
        **{f"{name} of bfloat16 numbers": in_folder(check_precision, name) for name in MODELS}})
