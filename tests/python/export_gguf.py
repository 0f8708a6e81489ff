"""Reads with the package `gguf` what `export --format gguf` writes: the tensors are those of the checkpoint in llama.cpp's order,
the metadata describe the model, and llama.cpp's formulas give with them the logits of the same model in `transformers`; its rules
for text give, with the stored tokens, the ids of this program.

usage: export_gguf.py ENCODE_TEXT METAFORMER
"""
import functools
import json
import sys
from pathlib import Path

import numpy
import torch
from gguf import GGUFReader, TokenType
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

import pretrained  # before transformers, which must stay offline
from transformers import AutoModelForCausalLM

from common import in_folder, run, run_cases, sets

ENCODE_TEXT, METAFORMER = (Path(argument).resolve() for argument in sys.argv[1:3])
metaformer = functools.partial(run, METAFORMER)

LINES = ["To be, or not to be: that is the question.", "Don't   stop -- don't EVER stop!", "8/10 caf\u00e9 CAF\u00c9",
         "\u201cdon\u2019t\u201d", "def f(x):\n    return x  # <b>\n\tpass", "\u6f22\u5b57 \U0001f44d  2026 "]
TEXT = "\n".join(LINES * 40) + "\n"
TEXTS = [*LINES, "", " ", "  a  b  ", "\n\n\n", "a\tb", "<unk>", "<0x41>", "<|endoftext|>",
         "\U0001f468\u200d\U0001f469", "\0", "To be" * 20, "?!.., 1234"]
LLAMA = {"layers": 2, "heads": 4, "width": 32, "context": 40, "norm": {"kind": "rms_norm", "epsilon": 1e-4},
         "feed_forward": "gated", "positions": {"kind": "rotary", "base": 500}, "mixer": "scaled_dot_product"}
SHAPES = {
    "tied embeddings": LLAMA,
    "grouped heads, own output layer": {**LLAMA, "mixer": {"kind": "scaled_dot_product", "key_value_heads": 2},
                                        "embedding": {"tie": False}},
    "biases": {**LLAMA, "bias": True, "heads": 2},
}
PIECES, BYTE_LEVEL = {"kind": "bpe", "vocabulary": 400}, {"kind": "pretrained", "path": "tokenizer.json"}


def train(root, model, tokenizer, special_tokens=("<|endoftext|>",)):
    pretrained.byte_level_tokenizer(LINES, 300, *special_tokens).save(str(root / "tokenizer.json"))
    pretrained.train_run(METAFORMER, root, TEXT, model, tokenizer, steps=10, batch_size=4)


def export(root, form, **options):
    return metaformer("export", "--run", "run", "--format", form, "--out", f"as_{form}", cwd=root, **options)


class Gguf:
    def __init__(self, file):
        reader = GGUFReader(file)
        self.values = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        self.tensors = {tensor.name: torch.from_numpy(numpy.array(tensor.data)) for tensor in reader.tensors}
        assert all(tensor.tensor_type.name == "F32" for tensor in reader.tensors)
        assert all(tensor.data_offset % 32 == 0 for tensor in reader.tensors)

    def __getitem__(self, key):
        return self.values[key]


def exported(root):
    export(root, "gguf")
    return Gguf(root / "as_gguf/model.gguf")


def check_metadata(root):
    train(root, SHAPES["grouped heads, own output layer"], PIECES)
    export(root, "huggingface")
    file, config = exported(root), json.loads((root / "as_huggingface/config.json").read_text())
    for key, theirs in {"vocab_size": "vocab_size", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
                        "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
                        "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads"}.items():
        assert file["llama." + key] == config[theirs], key
    assert file["general.architecture"] == "llama" and file["general.file_type"] == 0
    assert numpy.isclose(file["llama.attention.layer_norm_rms_epsilon"], 1e-4, rtol=1e-6)
    assert file["llama.rope.freq_base"] == 500 and file["llama.rope.dimension_count"] == 8
    return f"{len(file.values)} values"


def neighbours(rows, heads):
    """The rows i and i + half of each head, one after the other."""
    per_head = rows.shape[0] // heads
    half = per_head // 2
    return rows[[head * per_head + place + part for head in range(heads) for place in range(half) for part in (0, half)]]


def expected_tensors(ours, model):
    """The checkpoint's tensors with llama.cpp's names and order of rows."""
    heads, width = model["heads"], model["width"]
    key_heads = model["mixer"]["key_value_heads"] if isinstance(model["mixer"], dict) else heads
    key_rows = key_heads * width // heads
    named = {"token_embd.weight": ours["transformer.token_embedding.weight"],
             "output_norm.weight": ours["transformer.final_norm.weight"]}
    if "head.weight" in ours:
        named["output.weight"] = ours["head.weight"]
    for block in range(model["layers"]):
        for kind in ("weight", "bias"):
            def take(name):
                return ours.get(f"transformer.blocks.{block}.{name}.{kind}")
            if take("mixer.output") is None:
                continue
            q, k, v = take("mixer.query_key_value").split([width, key_rows, key_rows])
            gate, up = take("feed_forward.up").chunk(2)
            parts = {"attn_q": neighbours(q, heads), "attn_k": neighbours(k, key_heads), "attn_v": v,
                     "attn_output": take("mixer.output"), "attn_norm": take("mixer_norm"), "ffn_norm": take("feed_forward_norm"),
                     "ffn_gate": gate, "ffn_up": up, "ffn_down": take("feed_forward.down")}
            named.update({f"blk.{block}.{name}.{kind}": tensor for name, tensor in parts.items() if tensor is not None})
    return named


def check_tensors(root, model):
    train(root, model, PIECES)
    export(root, "safetensors")
    file, expected = exported(root), expected_tensors(load_file(root / "as_safetensors/model.safetensors"), model)
    assert set(file.tensors) == set(expected), set(file.tensors) ^ set(expected)
    for name, tensor in expected.items():
        assert torch.equal(file.tensors[name], tensor), name
    return f"{len(expected)} tensors"


def llama_cpp_logits(file, ids):
    """The formulas of llama.cpp's graph for the architecture llama, in float64."""
    heads, key_heads = file["llama.attention.head_count"], file["llama.attention.head_count_kv"]
    tensors = {name: tensor.double() for name, tensor in file.tensors.items()}
    places = torch.arange(len(ids), dtype=torch.float64)
    rotated = file["llama.rope.dimension_count"]
    angles = places[:, None] * file["llama.rope.freq_base"] ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)

    def norm(x, name):
        mean = x.square().mean(-1, keepdim=True)
        return x / (mean + file["llama.attention.layer_norm_rms_epsilon"]).sqrt() * tensors[name + ".weight"]

    def linear(x, name):
        return x @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0)

    def rotate(x_chw):  # neighbouring features together
        even, odd = x_chw[..., 0::2], x_chw[..., 1::2]
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    x = tensors["token_embd.weight"][ids]
    for block in range(file["llama.block_count"]):
        at = f"blk.{block}."
        normed = norm(x, at + "attn_norm")
        q, k, v = (linear(normed, at + name).unflatten(-1, (count, -1))
                   for name, count in [("attn_q", heads), ("attn_k", key_heads), ("attn_v", key_heads)])
        k, v = (part.repeat_interleave(heads // key_heads, 1) for part in (rotate(k), v))
        scores = torch.einsum("qhw,khw->hqk", rotate(q), k) / q.shape[-1] ** 0.5
        scores += torch.full_like(scores[0], -torch.inf).triu(1)
        x = x + linear(torch.einsum("hqk,khw->qhw", scores.softmax(-1), v).flatten(1), at + "attn_output")
        normed = norm(x, at + "ffn_norm")
        x = x + linear(torch.nn.functional.silu(linear(normed, at + "ffn_gate")) * linear(normed, at + "ffn_up"), at + "ffn_down")
    return linear(norm(x, "output_norm"), "output" if "output.weight" in tensors else "token_embd")


def check_logits(root, model):
    train(root, model, PIECES)
    export(root, "huggingface")
    theirs = AutoModelForCausalLM.from_pretrained(root / "as_huggingface").double().eval()
    file = exported(root)
    ids = torch.randint(0, file["llama.vocab_size"], (30,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = theirs(ids[None]).logits[0], llama_cpp_logits(file, ids)
    difference = (wanted - found).abs().max().item()
    assert difference < 1e-4 and wanted.std() > 0.1, (difference, wanted.std())  # transformers rotates in float32
    return f"logits differ by at most {difference:.1e}"


def our_ids(root):
    return json.loads(run(ENCODE_TEXT, root / "run/checkpoints/best/tokenizer.json", text=json.dumps(TEXTS)))


def merged_pieces(text, file):
    """llama.cpp's tokenizer `llama`: the pair of neighbours with the best score is merged first, the leftmost of several; what is
    no token then becomes bytes."""
    ids = {token: id for id, token in enumerate(file["tokenizer.ggml.tokens"])}
    scores = file["tokenizer.ggml.scores"]
    parts = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [(-scores[ids[a + b]], at) for at, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ids]
        if not pairs:
            break
        at = min(pairs)[1]
        parts[at:at + 2] = ["".join(parts[at:at + 2])]
    return [id for part in parts
            for id in ([ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()])]


def check_pieces(root):
    train(root, LLAMA, PIECES)
    file, types = exported(root), TokenType
    assert file["tokenizer.ggml.model"] == "llama"
    for text, ids in zip(TEXTS, our_ids(root), strict=True):
        assert merged_pieces(text, file) == ids, text
    by_type = {type: file["tokenizer.ggml.token_type"].count(type) for type in types}
    assert by_type[types.BYTE] == 256 and by_type[types.UNKNOWN] == 1, by_type
    assert not file["tokenizer.ggml.add_bos_token"] and not file["tokenizer.ggml.add_space_prefix"]
    unknown = file["tokenizer.ggml.unknown_token_id"]
    assert file["tokenizer.ggml.token_type"][unknown] == types.UNKNOWN and file["tokenizer.ggml.eos_token_id"] == unknown
    return f"{len(TEXTS)} texts"


def check_byte_level(root):
    train(root, LLAMA, BYTE_LEVEL)
    file = exported(root)
    tokens, types = file["tokenizer.ggml.tokens"], file["tokenizer.ggml.token_type"]
    assert (file["tokenizer.ggml.model"], file["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2")
    rebuilt = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)},
                                   [tuple(merge.split(" ")) for merge in file["tokenizer.ggml.merges"]]))
    rebuilt.pre_tokenizer, rebuilt.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    rebuilt.add_special_tokens([token for token, type in zip(tokens, types) if type == TokenType.CONTROL])
    for text, ids in zip(TEXTS, our_ids(root), strict=True):
        assert rebuilt.encode(text).ids == ids, text
    assert [token for token, type in zip(tokens, types) if type != TokenType.NORMAL] == ["<|endoftext|>"]
    return f"{len(TEXTS)} texts, {len(file['tokenizer.ggml.merges'])} merges"


def check_words(root):
    """The rules that cut texts into words have llama.cpp's names, and others are refused."""
    train(root, LLAMA, BYTE_LEVEL)
    file = root / "run/checkpoints/best/tokenizer.json"
    checkpoint = json.loads(file.read_text())
    names = {"smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]), False),
             "llama-bpe": (split_words(r"\p{N}{1,3}"), True), "dbrx": (split_words(r"\p{N}{1,3}"), False),
             "qwen2": (split_words(r"\p{N}"), False), None: (split_words(r"\p{N}{2}"), False)}
    for name, (words, ignores_merges) in names.items():
        tokenizer = Tokenizer.from_str(checkpoint["file"])
        tokenizer.pre_tokenizer = words
        changed = json.loads(tokenizer.to_str())
        changed["model"]["ignore_merges"] = ignores_merges
        folder = root / f"as {name}"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(changed))
        pretrained.train_run(METAFORMER, folder, TEXT, {**LLAMA, "layers": 1}, BYTE_LEVEL, steps=1, batch_size=1)
        if name is None:
            assert "into words by other rules" in export(folder, "gguf", code=2)
        else:
            assert exported(folder)["tokenizer.ggml.pre"] == name, name
    return ", ".join(filter(None, names))


def split_words(numbers):
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers +
               r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(False, use_regex=False)])


REFUSED = {
    "another mixer": ({**LLAMA, "mixer": "metric"}, PIECES, "model.mixer.kind is metric and must be scaled_dot_product"),
    "a GPT-2": ({"layers": 1, "heads": 2, "width": 16, "context": 16, "mixer": "scaled_dot_product", "bias": True}, PIECES,
                "must be rotary"),
    "another activation": ({**LLAMA, "feed_forward": {"kind": "gated", "activation": "gelu"}}, PIECES,
                           "activation is gelu and must be silu"),
    "characters": (LLAMA, {"kind": "character"}, "the tokenizer is character, which llama.cpp lacks"),
    "unigram": (LLAMA, {"kind": "unigram", "vocabulary": 400}, "the tokenizer is unigram"),
    "lower case": (LLAMA, {**PIECES, "lowercase": True}, "lower case"),
}


def check_refused(root, model, tokenizer, words):
    train(root, model, tokenizer)
    said = export(root, "gguf", code=2)
    assert "--format gguf: " in said and words in said and said.count("\n") == 1 and not (root / "as_gguf").exists(), said
    return said.strip()


if __name__ == "__main__":
    run_cases({"metadata": in_folder(check_metadata),
               **{f"tensors, {shape}": in_folder(check_tensors, model) for shape, model in SHAPES.items()},
               **{f"logits, {shape}": in_folder(check_logits, model) for shape, model in SHAPES.items()},
               "pieces": in_folder(check_pieces), "byte-level BPE": in_folder(check_byte_level), "words": in_folder(check_words),
               **{f"{what} is refused": in_folder(check_refused, *case) for what, case in REFUSED.items()}})
