"""Folders of tokens: the same files after any stop, the ids of the package `tokenizers`, and the same training as from text, from
our own files and from those of nanoGPT, llm.c and Megatron-LM.

usage: prepared_tokens.py METAFORMER
"""
import json
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet as parquet_files
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from common import in_folder, run, run_cases, sets
from mixed_text import mixed_text

PROGRAM = sys.argv[1]
ROOT = Path(__file__).resolve().parents[2]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MODEL = sets("model.layers=1", "model.heads=2", "model.width=16", "model.context=16", "train.batch_size=4", "train.steps=12",
             "train.eval_interval=4", "train.log_interval=1", "train.seed=3", "model.dropout=0")


def english():
    return "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))


LINES = [line for line in english().splitlines() if line]


def byte_level(folder, text, pattern=None):
    """Writes a tokenizer.json; returns the package's tokenizer, and the file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(False) if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return tokenizer, file


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def shards_of(folder, split):
    manifest = json.loads((folder / "manifest.json").read_text())["manifest"]
    kind = {2: "<u2", 4: "<u4"}[manifest["width"]]
    parts = [np.fromfile(folder / f"{split}-{number:05}.tokens", kind, count=shard["tokens"])
             for number, shard in enumerate(manifest["splits"][split]["shards"])]
    return np.concatenate(parts)


def documents_of(folder, split):
    return np.concatenate([np.fromfile(path, "<i8") for path in sorted(folder.glob(f"{split}-*.documents"))])


def stop_often(folder):
    draw = random.Random(5)
    (folder / "a.jsonl").write_text("".join(
        json.dumps({"text": mixed_text(draw.choice([20, 500, 3000, 200_000]), draw.randrange(10**6), LINES)}) + "\n" for _ in range(60)))
    _, tokenizer = byte_level(folder, english())
    def prepare(out, threads):
        return [PROGRAM, "data", "prepare", str(folder / "a.jsonl"), "--tokenizer", str(tokenizer), "--out", str(out),
                "--shard-tokens", "150000", "--threads", str(threads)]
    started = time.monotonic()
    run(*prepare(folder / "undisturbed", 2))
    seconds = time.monotonic() - started
    expected = files_of(folder / "undisturbed")
    assert sum(name.endswith(".tokens") for name in expected) > 5, sorted(expected)

    def require_same(folder):
        found = files_of(folder)
        assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
        assert found == expected, [name for name in found if found[name] != expected[name]]
    out, stops, finished = folder / "stopped", 0, 0
    points = ["shard", "sync", "rename", "write", "tokens", "full tokens"]
    first = [f"{point}:{count}" for point in ("write", "rename") for count in (1, 2, 3)]
    while stops < 20:
        environment = dict(os.environ)
        after = draw.uniform(0, seconds)
        if stops % 2 or first:
            environment["METAFORMER_FAULT"] = first.pop() if first else f"{draw.choice(points)}:{draw.randint(1, 6)}"
            after = 60
        process = subprocess.Popen(prepare(out, draw.randint(1, 4)), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
        code, message = process.wait(), process.stderr.read().decode()
        assert code in (0, 1, -9, -15, 143), (code, message)
        stops += code != 0
        done = {name: content for name, content in (files_of(out) if out.exists() else {}).items() if name in expected}
        for name, content in done.items():
            assert content == expected[name], f"{name} differs after stop {stops}"
        if code == 0:
            require_same(out)
            finished += 1
            run("rm", "-r", out)
    run(*prepare(out, 2))
    require_same(out)
    return f"{stops} stops, {finished} finished between them"


def same_ids(folder, pattern):
    text = mixed_text(3_000_000, 11, LINES) + english() * 8
    tokenizer, file = byte_level(folder, english(), pattern)
    (folder / "a.txt").write_text(text, newline="")
    run(PROGRAM, "data", "prepare", folder / "a.txt", "--tokenizer", file, "--out", folder / "tokens")
    cut = int(len(text) * (1 - 0.1))
    for split, part in (("train", text[:cut]), ("validation", text[cut:])):
        theirs = np.asarray(tokenizer.encode(part, add_special_tokens=False).ids)
        ours = shards_of(folder / "tokens", split)
        assert len(ours) == len(theirs) and (ours == theirs).all(), f"{split}: {len(ours)} and {len(theirs)} ids"
    return f"{len(text)} characters"


def losses(folder, *settings):
    out = folder / f"run{len(list(folder.glob('run*')))}"
    run(PROGRAM, "train", "--config", "shakespeare_base.yaml", *MODEL, *settings, "--out", out)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    keys = ("step", "loss", "val_loss", "val_bits_per_byte", "bits_per_byte")
    return [{key: line[key] for key in keys if key in line} for line in lines]


def same_training(folder, task, tokenizer, *settings):
    draw = random.Random(1)
    words = english().split()
    texts = [" ".join(draw.choices(words, k=draw.randint(2, 60))) for _ in range(300)]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    task = sets(f"task={task}")
    kept = sets("data.tokenizer.whitespace=kept") if tokenizer == "bpe" else []
    vocabulary = sets("data.tokenizer.vocabulary=600") if tokenizer != "character" else []
    own = [*task, *sets(f"data.tokenizer={tokenizer}"), *vocabulary, *kept]
    run(PROGRAM, "data", "prepare", folder / "a.jsonl", *own, "--out", folder / "tokens", "--shard-tokens", 5000)
    from_text = losses(folder, *own, *sets(f"data.path={folder}/a.jsonl"), *settings)
    from_tokens = losses(folder, *task, *sets(f"data.path={folder}/tokens"), *settings)
    assert len(from_text) > 12 and from_text == from_tokens, f"{from_text[-1]} and {from_tokens[-1]}"
    return f"{len(from_text)} lines of metrics"


def nanogpt(folder):
    """As nanoGPT's data/shakespeare_char/prepare.py writes."""
    text = "".join(character for character in english()[:60_000] if ord(character) < 256)
    (folder / "input.txt").write_text(text)
    characters = sorted(set(text))
    stoi = {character: index for index, character in enumerate(characters)}
    data = folder / "nano"
    data.mkdir()
    cut = int(len(text) * 0.9)
    for name, part in (("train", text[:cut]), ("val", text[cut:])):
        np.array([stoi[character] for character in part], np.uint16).tofile(data / f"{name}.bin")
    meta = {"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": stoi}
    from_text = losses(folder, *sets(f"data.path={folder}/input.txt"))
    for protocol in (2, 3, 4, 5):
        (data / "meta.pkl").write_bytes(pickle.dumps(meta, protocol))
        assert losses(folder, *sets(f"data.path={data}")) == [
            {key: value for key, value in line.items()} for line in from_text], f"protocol {protocol}"
    return f"loss {from_text[-1]}"


def others(folder):
    """The tokens of one preparation in the forms of llm.c and Megatron-LM."""
    draw = random.Random(2)
    words = english().split()
    (folder / "a.jsonl").write_text("".join(
        json.dumps({"text": " ".join(draw.choices(words, k=draw.randint(2, 90)))}) + "\n" for _ in range(400)))
    _, tokenizer = byte_level(folder, english())
    run(PROGRAM, "data", "prepare", folder / "a.jsonl", "--tokenizer", tokenizer, "--out", folder / "tokens")
    named = sets(f"data.tokenizer={{kind: pretrained, path: {tokenizer}}}")
    llm = folder / "llm"
    llm.mkdir()
    for split, name in (("train", "train"), ("validation", "val")):
        ids = shards_of(folder / "tokens", split)
        header = np.zeros(256, np.int32)
        header[:3] = 20240520, 1, len(ids)
        (llm / f"docs_{name}_000000.bin").write_bytes(header.tobytes() + ids.astype(np.uint16).tobytes())
        starts = [*documents_of(folder / "tokens", split), len(ids)]
        lengths = np.diff(starts).astype(np.int32)
        pointers = (np.concatenate([[0], np.cumsum(lengths)[:-1]]) * 4).astype(np.int64)
        index = np.arange(len(lengths) + 1, dtype=np.int64)
        (folder / f"{name}.bin").write_bytes(ids.astype(np.int32).tobytes())
        (folder / f"{name}.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(index)) +
                                             lengths.tobytes() + pointers.tobytes() + index.tobytes())
    ours = losses(folder, *sets(f"data.path={folder}/tokens"))
    assert losses(folder, *named, *sets(f"data.path={llm}")) == ours
    megatron = [*named, *sets(f"data.path={folder}/train.bin", f"data.validation_path={folder}/val.bin")]
    assert losses(folder, *megatron) == ours
    packed = sets("data.packing=spfhp")
    assert losses(folder, *megatron, *packed) == losses(folder, *sets(f"data.path={folder}/tokens"), *packed)
    return f"loss {ours[-1]}"


def parquet(folder):
    draw = random.Random(3)
    texts = [mixed_text(draw.choice([20, 400, 9000]), draw.randrange(10**6), LINES) for _ in range(300)] + ["", None]
    (folder / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts if text is not None))
    for number, kind in enumerate((pyarrow.string(), pyarrow.large_string())):
        table = pyarrow.table({"id": list(range(len(texts))), "body": pyarrow.array(texts, kind)})
        parquet_files.write_table(table, folder / f"{number}.parquet", row_group_size=50)
    probe = subprocess.run([PROGRAM, "data", "prepare", folder / "0.parquet", "--tokenizer", "byte", "--out", folder / "probe"],
                           capture_output=True, text=True)
    if "with which this program was not built" in probe.stderr:
        return "skipped: the program was built without Arrow's library"
    sources = {"lines": "a.jsonl", "strings": "0.parquet", "large": "1.parquet"}
    for name, source in sources.items():
        run(PROGRAM, "data", "prepare", folder / source, "--tokenizer", "byte", *sets("data.text_field=body"), "--out", folder / name)
    for name in ("strings", "large"):
        for split in ("train", "validation"):
            assert (shards_of(folder / name, split) == shards_of(folder / "lines", split)).all()
            assert (documents_of(folder / name, split) == documents_of(folder / "lines", split)).all()
    for field, expected in (("text", "no column 'text'; it has id, body"), ("id", "column 'id' is int64, not text")):
        message = run(PROGRAM, "data", "prepare", folder / "0.parquet", "--tokenizer", "byte", *sets(f"data.text_field={field}"),
                      "--out", folder / "x", code=3)
        assert expected in message, message
    (folder / "cut.parquet").write_bytes((folder / "0.parquet").read_bytes()[:-9])
    message = run(PROGRAM, "data", "prepare", folder / "cut.parquet", "--tokenizer", "byte", "--out", folder / "y", code=3)
    assert "cut.parquet" in message and message.count("\n") == 1, message
    return f"{len(texts)} rows"


def standard_input(folder):
    text = mixed_text(400_000, 4, LINES)
    (folder / "a.txt").write_text(text, newline="")
    run(PROGRAM, "data", "prepare", folder / "a.txt", "--tokenizer", "byte", "--out", folder / "file")
    with open(folder / "a.txt") as file:
        subprocess.run([PROGRAM, "data", "prepare", "-", "--tokenizer", "byte", "--out", folder / "input"], stdin=file, check=True,
                       capture_output=True)
    assert (shards_of(folder / "file", "train") == shards_of(folder / "input", "train")).all()
    assert not (folder / "input/standard_input").exists()
    run(PROGRAM, "data", "prepare", "-", "--tokenizer", "byte", "--out", folder / "input", text="")  # is complete
    message = run(PROGRAM, "data", "prepare", folder / "a.txt", "--tokenizer", "gpt7", "--out", folder / "x", code=2)
    assert "--tokenizer gpt7: expected character, byte, word" in message and message.count("\n") == 1, message
    message = run(PROGRAM, "data", "prepare", folder / "a.txt", "--tokenizer", "word", "--out", folder / "file", code=2)
    assert "holds tokens of other files or options" in message, message
    return "the same tokens as from the file"


run_cases({
    "stopped at 20 moments": in_folder(stop_often),
    "ids with GPT-2's pattern": in_folder(same_ids, None),
    "ids with LLaMA 3's pattern": in_folder(same_ids, LLAMA3),
    "training on windows of characters": in_folder(same_training, "language_model", "character"),
    "training on windows of words": in_folder(same_training, "language_model", "word"),
    "training on windows of subwords": in_folder(same_training, "language_model", "bpe"),
    "training on separate documents": in_folder(same_training, "language_model", "word", *sets("data.separate_documents=true")),
    "training on packs": in_folder(same_training, "language_model", "bpe", *sets("data.packing=spfhp")),
    "training in order": in_folder(same_training, "language_model", "word", *sets("model.memory=16", "model.positions=transformer_xl")),
    "training on hidden words": in_folder(same_training, "masked_language_model", "bpe"),
    "nanoGPT's files": in_folder(nanogpt),
    "files of llm.c and Megatron-LM": in_folder(others),
    "Parquet": in_folder(parquet),
    "standard input and mistakes": in_folder(standard_input),
})
