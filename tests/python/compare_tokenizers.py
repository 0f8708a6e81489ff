"""Ids of our pretrained tokenizers against the package `tokenizers`, for the regular expressions of GPT-2, LLaMA 3, Qwen,
SmolLM, GPT-4o and DeepSeek: for code points of all planes, and for 10 MB of mixed text. Also against GPT2TokenizerFast, which
reads vocab.json and merges.txt.

usage: compare_tokenizers.py ENCODE_TEXT
"""
import json
import os
import sys
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
from transformers import GPT2TokenizerFast  # noqa: E402
from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode  # noqa: E402

from common import in_folder, run, run_cases  # noqa: E402
from mixed_text import characters, every_character, mixed_text  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = "|".join([r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
# The categories that patterns may name.
CATEGORIES = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
              "S", "Sm", "Sc", "Sk", "So", "Z"]
ROOT = Path(__file__).resolve().parents[2]


def splits(*patterns):
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(False, use_regex=False)])


# {name: the pre-tokenizer, and the fraction of the text that is compared}
CASES = {
    "GPT-2": (pre_tokenizers.ByteLevel(False), 1),
    "LLaMA 3": (splits(LLAMA3), 1),
    "Qwen": (splits(LLAMA3.replace("{1,3}", "")), 0.2),
    "SmolLM": (pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]), 0.2),
    "runs of digits": (pre_tokenizers.Sequence([pre_tokenizers.Digits(False), pre_tokenizers.ByteLevel(False)]), 0.1),
    "GPT-4o": (splits(GPT4O), 0.2),
    "DeepSeek": (splits(*DEEPSEEK), 0.2),
}


def english():
    """Lines of the documentation."""
    return [line.strip() for path in sorted((ROOT / "docs").glob("*.md")) for line in path.read_text().splitlines() if line.strip()]


def trained(pre_tokenizer, text, vocabulary=4000, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(["<|im_start|>"])
    tokenizer.add_tokens(["<|a|>", "|>"])
    return tokenizer


def our_ids(folder, text):
    [ids] = json.loads(run(sys.argv[1], folder, text=json.dumps([text])))
    return np.asarray(ids, np.int32)


def require_same(ours, theirs, tokenizer):
    theirs = np.asarray(theirs, np.int32)
    common = min(len(ours), len(theirs))
    differing = np.flatnonzero(ours[:common] != theirs[:common])
    if len(ours) == len(theirs) and not len(differing):
        return
    at = differing[0] if len(differing) else common
    pieces = [[tokenizer.id_to_token(int(i)) for i in ids[max(at - 3, 0):at + 5]] for ids in (ours, theirs)]
    raise AssertionError(f"id {at} differs: {pieces[0]} and {pieces[1]}")


def compare(folder, pre_tokenizer, texts, training_text, model):
    tokenizer = trained(pre_tokenizer, training_text, **model)
    tokenizer.save(str(folder / "tokenizer.json"))
    for sample in texts:
        ours = our_ids(folder, sample)
        require_same(ours, tokenizer.encode(sample, add_special_tokens=False).ids, tokenizer)
    return f"{len(ours)} ids equal"


def compare_gpt2_files(folder, text, training_text):
    trained(pre_tokenizers.ByteLevel(False), training_text).model.save(str(folder))
    theirs = GPT2TokenizerFast.from_pretrained(folder)
    ours = our_ids(folder, text)
    require_same(ours, theirs(text)["input_ids"], theirs.backend_tokenizer)
    return f"{len(ours)} ids equal"


def every_boundary():
    """A vocabulary and rules that merge the last byte of a character with the first of the next one, and nothing else, so that the
    ids of a text show its cuts."""
    letters = bytes_to_unicode()
    rules = [(letters[last], letters[first]) for last in range(256) for first in range(256) if first < 0x80 or first >= 0xC0]
    tokens = [*letters.values(), *("".join(pair) for pair in rules)]
    return {token: i for i, token in enumerate(tokens)}, rules


def compare_categories(folder):
    """Compares the characters that each part of an expression matches."""
    text = "".join(characters())
    parts = [*(rf"\p{{{category}}}" for category in CATEGORIES), r"\s", r"\S", r"\d", r"\P{L}", r"[^\s\p{L}\p{N}]",
             "(?i:s)", "(?i:t|d|m|k)"]
    for part in parts:
        tokenizer = Tokenizer(models.BPE(*every_boundary()))
        tokenizer.pre_tokenizer = splits(part + "+")
        tokenizer.save(str(folder / "tokenizer.json"))
        ours = our_ids(folder, text)
        try:
            require_same(ours, tokenizer.encode(text).ids, tokenizer)
        except AssertionError as error:
            raise AssertionError(f"{part}: {error}") from None
    return f"{len(parts)} parts of expressions match the same of {len(text)} characters"


if __name__ == "__main__":
    lines = english()
    text, training_text = mixed_text(10_000_000, 1, lines), mixed_text(300_000, 2, lines)
    cases = {"parts of expressions": in_folder(compare_categories),
             "GPT-2's two files": in_folder(compare_gpt2_files, text[:len(text) // 10], training_text)}
    for name, (pre_tokenizer, fraction) in CASES.items():
        texts = [text[:int(len(text) * fraction)]]
        if fraction == 1:
            texts.insert(0, every_character())
        model = {"ignore_merges": True} if name == "LLaMA 3" else {}
        cases[name] = in_folder(compare, pre_tokenizer, texts, training_text, model)
    run_cases(cases)
