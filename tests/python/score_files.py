"""Scores of files and of lines: those of the splits with the same texts, of each other, and of the hypotheses of a beam search.

usage: score_files.py METAFORMER
"""
import json
import math
import random
import sys
from pathlib import Path

from common import in_folder, run, run_cases, sets

PROGRAM = sys.argv[1]
ROOT = Path(__file__).resolve().parents[2]
SMALL = sets("model.layers=1", "model.width=16", "train.batch_size=8", "train.steps=40", "train.eval_interval=40",
             "train.seed=2")


def near(left, right, tolerance=2e-6):
    assert math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance), f"{left} and {right}"


def evaluate(folder, *words):
    return json.loads(run(PROGRAM, "evaluate", "--run", folder / "run", *words, "--json"))


def per_line(folder, *words):
    return [json.loads(line) for line in run(PROGRAM, "evaluate", "--run", folder / "run", *words, "--per-line", "--json").splitlines()]


def train(folder, config, *settings):
    run(PROGRAM, "train", "--config", config, *SMALL, *sets(*settings), "--out", folder / "run")


def texts(folder, tokenizer, *settings):
    words = " ".join(path.read_text() for path in sorted((ROOT / "docs").glob("c*.md"))).split()
    draw = random.Random(1)
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(900)]
    (folder / "train.txt").write_text("\n".join(lines[:800]) + "\n")
    (folder / "held.txt").write_text("\n".join(lines) + "\n")  # without a character that the model does not know
    train(folder, "shakespeare_base.yaml", "model.context=32", f"data.path={folder}/train.txt", f"data.validation_path={folder}/held.txt",
          f"data.tokenizer={tokenizer}", *settings)
    split, file = evaluate(folder), evaluate(folder, folder / "held.txt")
    for key in ("loss", "bits_per_byte", "accuracy", "tokens"):
        near(split[key], file[key])
    if "lossless_bits_per_byte" in split:
        near(split["lossless_bits_per_byte"], file["lossless_bits_per_byte"])
    # A text of one window is a line of its own.
    one = min((line for line in lines if 10 < len(line) < 30), key=len)
    (folder / "one.txt").write_text(one)
    file, [line] = evaluate(folder, folder / "one.txt"), per_line(folder, folder / "one.txt")
    assert line["tokens"] == file["tokens"]
    near(-line["log_probability"], file["loss"] * file["tokens"], 1e-5)
    near(line["bits_per_byte"], file["bits_per_byte"], 1e-5)
    # Lines in a batch are scored like lines alone, and JSON lines like plain ones.
    some = [line for line in lines if len(line) > 3][:40] + [lines[0] + " " + " ".join(lines[1:9])]
    (folder / "some.txt").write_text("\n".join(some))
    (folder / "some.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    plain, objects = per_line(folder, folder / "some.txt"), per_line(folder, folder / "some.jsonl")
    assert [line["line"] for line in plain] == list(range(1, len(some) + 1)) and len(objects) == len(some)
    for number in (0, 7, len(some) - 1):
        (folder / "one.txt").write_text(some[number])
        [alone] = per_line(folder, folder / "one.txt")
        near(alone["log_probability"], plain[number]["log_probability"], 1e-5)
    for left, right in zip(plain, objects):
        near(left["log_probability"], right["log_probability"], 1e-6)
        assert left["bytes"] == right["bytes"]
    assert run(PROGRAM, "evaluate", "--run", folder / "run", "-", "--per-line", text=some[0] + "\n").count("\t") == 1
    return f"loss {split['loss']:.4f}, {len(some)} lines"


def classes(folder):
    draw = random.Random(4)
    def rows(count):
        picked = [(draw.choice(["good", "bad", "fine", "poor"]), draw.choice(["a film", "the plot", "an actor"])) for _ in range(count)]
        return [(f"{what} was {word} {draw.randrange(9)}", "pos" if word in ("good", "fine") else "neg") for word, what in picked]
    tables = {"train": rows(200), "test": rows(60)}
    for name, table in tables.items():
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in table))
    train(folder, "imdb_scaled_dot_product.yaml", "data.corpus=tinyshakespeare", f"data.path={folder}/train.csv",
          f"data.test_path={folder}/test.csv", "task.baselines=false")
    split, file = evaluate(folder, "--split", "test"), evaluate(folder, folder / "test.csv")
    for key in ("loss", "accuracy", "auc", "texts"):
        near(split[key], file[key])
    lines = per_line(folder, folder / "test.csv")
    near(sum(line["log_probability"] for line in lines) / -len(lines), split["loss"], 1e-4)
    near(sum(line["label"] == line["predicted"] for line in lines) / len(lines), split["accuracy"])
    (folder / "other.csv").write_text("text,label\na film,strange\n")
    message = run(PROGRAM, "evaluate", "--run", folder / "run", folder / "other.csv", "--per-line", code=3)
    assert "other.csv:2: the label 'strange' is not among the 2" in message, message
    return f"loss {split['loss']:.4f}, {len(lines)} rows"


def pairs(folder):
    draw = random.Random(5)
    def rows(count):
        sources = [draw.choices("abcdefg", k=draw.randint(2, 7)) for _ in range(count)]
        return [(" ".join(source), " ".join(reversed(source))) for source in sources]
    for name, table in (("train", rows(400)), ("test", rows(50))):
        (folder / f"{name}.tsv").write_text("source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in table))
        (folder / f"{name}.source").write_text("".join(source + "\n" for source, _ in table))
        (folder / f"{name}.target").write_text("".join(target + "\n" for _, target in table))
    train(folder, "multi30k_short.yaml", "data.corpus=tinyshakespeare", f"data.path={folder}/train.tsv", f"data.test_path={folder}/test.tsv",
          "data.tokenizer=word", "train.precision=fp32", "model.encoder.layers=1")
    split, file = evaluate(folder, "--split", "test"), evaluate(folder, folder / "test.tsv")
    for key in ("loss", "exact_match", "targets"):
        near(split[key], file[key])
    assert split["written"]["bleu"] == file["written"]["bleu"]
    lines = per_line(folder, folder / "test.tsv")
    near(-sum(line["log_probability"] for line in lines) / split["targets"], split["loss"], 1e-5)
    for left, right in zip(lines, per_line(folder, folder / "test.source", "--targets", folder / "test.target")):
        near(left["log_probability"], right["log_probability"], 1e-6)
    # The hypotheses of a beam search have the scores of their texts as targets.
    best = run(PROGRAM, "predict", "--run", folder / "run", folder / "test.source", "--beam", 3, "--n-best", 2, "--scores").splitlines()
    assert len(best) == 100
    fields = [line.split(" ||| ") for line in best]
    assert [int(field[0]) for field in fields] == [number for number in range(1, 51) for _ in range(2)]
    written = [field for field in fields if field[1].strip()]
    (folder / "hypotheses.tsv").write_text("source\ttarget\n" + "".join(
        f"{(folder / 'test.source').read_text().splitlines()[int(number) - 1]}\t{text}\n" for number, text, _, _ in written))
    for line, field in zip(per_line(folder, folder / "hypotheses.tsv"), written):
        near(line["log_probability"], float(field[2]), 2e-4)
    return f"loss {split['loss']:.4f}, {len(written)} hypotheses"


run_cases({
    "texts of characters": in_folder(texts, "character"),
    "texts of words": in_folder(texts, "word", "data.tokenizer.vocabulary=80"),
    "texts of bytes with a recurrent model": in_folder(texts, "byte", "model=gru"),
    "classes": in_folder(classes),
    "pairs": in_folder(pairs),
})
