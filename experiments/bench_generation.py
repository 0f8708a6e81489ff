#!/usr/bin/env python3
"""Speed of generating one text on the CPU with GPT-2 (124 million parameters): this program with weights in float32 and bfloat16
beside CTranslate2 in every type that it supports on this CPU, interleaved. The weights are random, the same for all, and nothing
is downloaded.

  .deps/venv/bin/pip install --no-deps ctranslate2          (scripts/setup.sh --tests installs the other packages)
  .deps/venv/bin/python experiments/bench_generation.py
  .deps/venv/bin/python experiments/bench_generation.py --rounds 3 --json
  .deps/venv/bin/python experiments/bench_generation.py --layers 2 --heads 2 --width 64 --rounds 1     (a test of a few seconds)

A measurement starts a process, which generates the text twice; the second time counts, and includes that of the prompt. Every token
is the most likely one. GB/s are the bytes of the matrices that a token reads, in the type in which they are stored, times the
tokens per second; the time of the prompt makes this number smaller. "Same text" counts the characters before the first one that
differs from ours in float32, without those that no character of UTF-8 has. CTranslate2 may be in another environment: --python.
"""
import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY, CONTEXT = 50257, 1024  # of GPT-2
PROMPT_TOKENS = 32
OURS = {"metaformer fp32": "fp32", "metaformer bf16": "bf16"}
THEIRS = {"CTranslate2 float32": "float32", "CTranslate2 bfloat16": "bfloat16", "CTranslate2 int8": "int8"}
BYTES = {"fp32": 4, "bf16": 2, "float32": 4, "bfloat16": 2, "int8": 1}
REFERENCE = "metaformer fp32"


def pair_tokenizer():
    """A byte-level BPE with the vocabulary of GPT-2, whose merges are pairs of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = list(itertools.islice(itertools.product(alphabet, alphabet), VOCABULARY - 1 - len(alphabet)))
    tokens = [*alphabet, *("".join(pair) for pair in merges), "<|endoftext|>"]
    tokenizer = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    return tokenizer


def documents():
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))


def prompt_of(tokenizer):
    """The beginning of a line that has PROMPT_TOKENS tokens, and the tokens."""
    line = " ".join(documents().split())
    for end in range(PROMPT_TOKENS, len(line)):
        encoded = tokenizer.encode(line[:end])
        if len(encoded.ids) == PROMPT_TOKENS:
            return line[:end], encoded.tokens
    sys.exit(f"no beginning of the documents has {PROMPT_TOKENS} tokens")


def save_model(folder, shape):
    """A GPT-2 with random weights; returns the prompt and its tokens. Smaller weights would repeat one token again and again."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    tokenizer = pair_tokenizer()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>",
                            unk_token="<|endoftext|>").save_pretrained(folder)
    torch.manual_seed(1)
    sizes = {"n_layer": shape["layers"], "n_head": shape["heads"], "n_embd": shape["width"]}
    GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.1)).save_pretrained(folder)
    return prompt_of(tokenizer)


def import_run(program, folder):
    """A run with the weights of folder/gpt2: it trains one step, with a learning rate that changes no weight."""
    (folder / "text.txt").write_text(documents()[:20000], encoding="utf-8")
    settings = ["data.path=text.txt", "data.validation_fraction=0.2", "train.optimizer=sgd", "train.steps=1", "train.batch_size=1",
                "train.schedule.warmup_steps=0", "train.learning_rate=1e-30", "train.evaluation={kind: limited, tokens: 1}"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    for words in (["config", "import", "gpt2", "--out", "gpt2.yaml"],
                  ["train", "--config", "gpt2.yaml", *overrides, "--device", "cpu", "--out", "run", "--quiet"]):
        subprocess.run([program, *words], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return json.loads((folder / "run/environment.json").read_text(encoding="utf-8"))


def without_fragments(text):
    """The text without the marks of bytes that are no character."""
    return text.replace("\ufffd", "")


def our_measurement(program, folder, precision, prompt, arguments):
    command = [program, "sample", "--run", "run", "--device", "cpu", "--interactive", "--tokens", str(arguments.tokens),
               "--temperature", "0", "--no-eos", "--json", *(["--precision", precision] if precision != "fp32" else [])]
    printed = subprocess.run(command, check=True, cwd=folder, input=f"{prompt}\n" * 2, capture_output=True, text=True).stdout
    answer = json.loads(printed.splitlines()[-1])
    assert answer["tokens"] == arguments.tokens and not answer["cut"]
    return {"seconds": answer["seconds"], "text": without_fragments(answer["text"])}


def their_measurement(folder, compute_type, arguments):
    command = [arguments.python, __file__, "--worker", compute_type, "--threads", str(arguments.threads), "--tokens",
               str(arguments.tokens)]
    return json.loads(subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout)


def worker(compute_type, threads, tokens):
    """Prints what CTranslate2 supports, or a measurement of it in the working folder."""
    import ctranslate2
    if compute_type == "info":
        return {"version": ctranslate2.__version__, "types": sorted(ctranslate2.get_supported_compute_types("cpu"))}
    if compute_type == "convert":
        ctranslate2.converters.TransformersConverter("gpt2").convert("ctranslate2", force=True)
        return {}
    generator = ctranslate2.Generator("ctranslate2", device="cpu", compute_type=compute_type, inter_threads=1,
                                      intra_threads=threads)
    prompt = json.loads(Path("prompt.json").read_text(encoding="utf-8"))
    for _ in range(2):
        start = time.perf_counter()
        results = generator.generate_batch([prompt], beam_size=1, sampling_topk=1, max_length=tokens, min_length=tokens,
                                           include_prompt_in_result=False)
        seconds = time.perf_counter() - start
    written = results[0].sequences[0]
    assert len(written) == tokens, f"{len(written)} tokens"
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file("gpt2/tokenizer.json")
    text = "".join(tokenizer.decode([tokenizer.token_to_id(token)]) for token in written)  # token by token, like `sample`
    return {"seconds": seconds, "text": without_fragments(text)}


def same_beginning(one, other):
    return next((place for place, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def measure(folder, prompt, supported, arguments):
    """The measurements of every way, by round; every second round has the opposite order."""
    ways = {**OURS, **{name: kind for name, kind in THEIRS.items() if kind in supported}}
    found = {way: [] for way in ways}
    for number in range(arguments.rounds):
        for way in list(ways)[::-1 if number % 2 else 1]:
            found[way].append(our_measurement(arguments.program, folder, ways[way], prompt, arguments) if way in OURS else
                              their_measurement(folder, ways[way], arguments))
            speed = arguments.tokens / found[way][-1]["seconds"]
            print(f"round {number + 1}, {way}: {speed:.1f} tokens/s", file=sys.stderr)
    return found


def summary(found, arguments):
    numbers = arguments.width * (12 * arguments.layers * arguments.width + VOCABULARY)  # of the matrices that a token reads
    rows = []
    for way, measurements in found.items():
        speeds = [arguments.tokens / each["seconds"] for each in measurements]
        ratios = [before["seconds"] / each["seconds"] for each, before in zip(measurements, found[REFERENCE])]
        width = BYTES[{**OURS, **THEIRS}[way]]
        rows.append({"way": way, "tokens_per_second": statistics.median(speeds), "least": min(speeds), "most": max(speeds),
                     "gigabytes_per_second": statistics.median(speeds) * numbers * width / 1e9,
                     "ratio": statistics.median(ratios), "least_ratio": min(ratios), "most_ratio": max(ratios),
                     "same_text": same_beginning(measurements[0]["text"], found[REFERENCE][0]["text"]),
                     "text": len(found[REFERENCE][0]["text"])})
    return rows


def print_table(report):
    print(f"{report['cpu']}, {report['threads']} threads, CTranslate2 {report['ctranslate2']}, {report['date']}; GPT-2 with "
          f"{report['layers']} layers, {report['heads']} heads, width {report['width']}; {report['tokens']} tokens after a "
          f"prompt of {PROMPT_TOKENS}; medians of {report['rounds']} rounds (least to most)\n")
    print("| program and weights | tokens/s | GB/s | beside ours in float32 | same text |")
    print("|---|---|---|---|---|")
    for row in report["ways"]:
        print(f"| {row['way']} | {row['tokens_per_second']:.1f} ({row['least']:.1f} to {row['most']:.1f}) | "
              f"{row['gigabytes_per_second']:.1f} | {row['ratio']:.2f} ({row['least_ratio']:.2f} to {row['most_ratio']:.2f}) | "
              f"{row['same_text']} of {row['text']} characters |")
    for way in report["unsupported"]:
        print(f"| {way} | not supported on this CPU | | | |")


def compare(arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        info = their_measurement(folder, "info", arguments)
        shape = {key: getattr(arguments, key) for key in ("layers", "heads", "width")}
        prompt, tokens = save_model(folder / "gpt2", shape)
        (folder / "prompt.json").write_text(json.dumps(tokens), encoding="utf-8")
        environment = import_run(arguments.program, folder)
        their_measurement(folder, "convert", arguments)
        found = measure(folder, prompt, info["types"], arguments)
    return {"date": datetime.date.today().isoformat(), "cpu": environment["device_name"], "threads": arguments.threads,
            "ctranslate2": info["version"], "commit": environment["commit"], **shape, "context": CONTEXT,
            "prompt": PROMPT_TOKENS, "tokens": arguments.tokens, "rounds": arguments.rounds, "ways": summary(found, arguments),
            "unsupported": [way for way, kind in THEIRS.items() if kind not in info["types"]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "scripts/run.sh", help="metaformer or its start script")
    parser.add_argument("--python", default=sys.executable, help="a Python with ctranslate2, torch, transformers and tokenizers")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128, help="generated tokens")
    for name, usual in {"layers": 12, "heads": 12, "width": 768}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return print(json.dumps(worker(arguments.worker, arguments.threads, arguments.tokens)))
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # of both programs
    arguments.program = arguments.program.resolve()
    report = compare(arguments)
    if arguments.json:
        print(json.dumps(report))
    else:
        print_table(report)


if __name__ == "__main__":
    main()
