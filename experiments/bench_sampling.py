#!/usr/bin/env python3
"""Compares the speed of sampling on the CPU with nanoGPT's method in Python, with the same weights, interleaved on one machine.

  .deps/venv/bin/python experiments/bench_sampling.py               (scripts/setup.sh --tests installs its packages)
  .deps/venv/bin/python experiments/bench_sampling.py --rounds 3 --json

nanoGPT's method is PyTorch, eager, float32, without a cache, so that every token encodes the whole window again. metaformer is
also measured with a metric mixer, whose cache is half as large. Both programs always see the same tokens: within the context
all tokens, and past it the last 256 (--window slide, without a cache; the default, --window half, would see fewer). The
weights are those after one step, because the speed does not depend on them. OMP_NUM_THREADS sets the threads of both
programs; with more threads than idle cores, both mostly wait.
"""
import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
import reference_model  # noqa: E402

CONTEXT = 256
SHAPES = {"CPU recipe": {"layers": 4, "heads": 4, "width": 128}, "GPU recipe": {"layers": 6, "heads": 6, "width": 384}}
MIXERS = {"scaled_dot_product": "scaled_dot_product", "metric": "metric_published"}  # ends of the names of configs
TEMPERATURE, TOP_K = 0.8, 200
PROMPT = "\n"
# Prompt and generated tokens of each row. The last token within the context is drawn after CONTEXT - 1 tokens.
CASES = {"within": {"prompt": 1, "tokens": CONTEXT - 1}, "past": {"prompt": CONTEXT, "tokens": 64}}


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, c, d = x.shape
        q, k, v = (t.view(b, c, self.heads, -1).transpose(1, 2) for t in self.query_key_value(x).split(d, -1))
        t = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(t.transpose(1, 2).reshape(b, c, d))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.mixer_norm = nn.LayerNorm(width, bias=False)
        self.mixer = Attention(heads, width)
        self.feed_forward_norm = nn.LayerNorm(width, bias=False)
        self.feed_forward = FeedForward(width)

    def forward(self, x):
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Gpt(nn.Module):
    """nanoGPT's model, with metaformer's names of weights (without "transformer.")."""

    def __init__(self, vocabulary, layers, heads, width):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width, bias=False)

    def hidden(self, ids):
        x = self.token_embedding(ids) + self.position_embedding(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.final_norm(x)

    def forward(self, ids):
        return F.linear(self.hidden(ids), self.token_embedding.weight)

    @torch.no_grad()
    def generate(self, ids, tokens):
        for _ in range(tokens):
            hidden = self.hidden(ids[:, -CONTEXT:])
            logits = F.linear(hidden[:, -1], self.token_embedding.weight) / TEMPERATURE  # only for the last token
            least = torch.topk(logits, min(TOP_K, logits.shape[-1])).values[:, -1:]
            probabilities = F.softmax(logits.masked_fill(logits < least, -float("inf")), -1)
            ids = torch.cat((ids, torch.multinomial(probabilities, 1)), 1)
        return ids


def train(program, shape, mixer, run):
    """A run of one step, which is sufficient for sampling."""
    settings = {**{f"model.{key}": value for key, value in shape.items()}, "model.context": CONTEXT, "train.steps": 1,
                "train.batch_size": 1, "data.validation_fraction": 0.01}
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([program, "train", "--config", f"shakespeare_{MIXERS[mixer]}.yaml", *overrides, "--device", "cpu", "--out",
                    run, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return run


def our_speed(program, run, prompt, tokens):
    """The median of a few starts, because one takes only some hundredths of a second."""
    speeds = []
    for _ in range(5):
        answer = json.loads(subprocess.check_output(
            [program, "sample", "--run", run, "--device", "cpu", "--prompt", PROMPT * prompt, "--tokens", str(tokens),
             "--temperature", str(TEMPERATURE), "--top-k", str(TOP_K), "--window", "slide", "--json"]))
        assert answer["tokens"] == tokens
        speeds.append(answer["tokens_per_second"])
    return statistics.median(speeds)


def load(run, shape):
    """The PyTorch model of a run, compared with the formulas, and the id of the prompt's character."""
    checkpoint = run / "checkpoints/best"
    weights = load_file(checkpoint / "model.safetensors")
    characters = json.loads((checkpoint / "tokenizer.json").read_text())["characters"]
    model = Gpt(len(characters), **shape).eval()
    model.load_state_dict({name.removeprefix("transformer."): weight for name, weight in weights.items()})
    config = {"model": {**shape, "mixer": {"kind": "scaled_dot_product"}, "embedding": {"tie": True}, "residual": True,
                        "norm": {"kind": "layer_norm", "position": "pre", "epsilon": 1e-5},
                        "feed_forward": {"kind": "mlp", "activation": {"kind": "gelu"}, "output_activation": False}}}
    ids = torch.randint(len(characters), (2, CONTEXT))
    with torch.no_grad():
        expected = reference_model.forward(config, {name: weight.double() for name, weight in weights.items()}, ids)
        error = ((model(ids) - expected).norm() / expected.norm()).item()
    assert error <= 1e-5, f"the PyTorch model differs from the formulas by {error:.1e}"
    return model, torch.tensor([[characters.index(PROMPT)]])


def python_speed(model, prompt, tokens):
    start = time.perf_counter()
    model.generate(prompt, tokens)
    return tokens / (time.perf_counter() - start)


def measure(program, name, runs, case, rounds):
    shape, tokens = SHAPES[name], CASES[case]["tokens"]
    model, character = load(runs["scaled_dot_product"], shape)
    prompt = character.repeat(1, CASES[case]["prompt"])
    python_speed(model, prompt, 10)  # warm-up: the first calls of a process are not timed
    speeds = {"nanogpt": [], **{mixer: [] for mixer in MIXERS}}
    for _ in range(rounds):
        for mixer, run in runs.items():
            speeds[mixer].append(our_speed(program, run, CASES[case]["prompt"], tokens))
        speeds["nanogpt"].append(python_speed(model, prompt, tokens))
    ratios = {mixer: [ours / theirs for ours, theirs in zip(speeds[mixer], speeds["nanogpt"])] for mixer in MIXERS}
    return {"model": name, **shape, "context": CONTEXT, "case": case, **CASES[case],
            "tokens_per_second": {way: statistics.median(values) for way, values in speeds.items()},
            "ratio": {mixer: {"median": statistics.median(values), "least": min(values), "most": max(values)}
                      for mixer, values in ratios.items()}}


def print_table(report):
    print(f"{report['cpu']}, {report['threads']} threads, PyTorch {report['torch']}, {report['date']}; "
          f"median tokens per second of {report['rounds']} rounds; both sides see the same tokens\n")
    print("| layers/heads/width | context of 256 | nanoGPT's way | ours | ratio (least to most) | ours, metric | ratio |")
    print("|---|---|---|---|---|---|---|")
    for row in report["models"]:
        speeds = row["tokens_per_second"]
        ratios = [f"{ratio['median']:.1f} ({ratio['least']:.1f} to {ratio['most']:.1f})"
                  for ratio in (row["ratio"][mixer] for mixer in MIXERS)]
        where = f"within: {row['tokens']} tokens" if row["case"] == "within" else f"past: {row['tokens']} tokens, sliding"
        print(f"| {row['layers']}/{row['heads']}/{row['width']} | {where} | {speeds['nanogpt']:.0f} | "
              f"{speeds['scaled_dot_product']:.0f} | {ratios[0]} | {speeds['metric']:.0f} | {ratios[1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "scripts/run.sh", help="metaformer or its start script")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: {mixer: train(arguments.program, shape, mixer, Path(folder) / f"{name} {mixer}")
                       for mixer in MIXERS} for name, shape in SHAPES.items()}
        environment = json.loads(next(Path(folder).glob("*/environment.json")).read_text())
        assert environment["threads"] == torch.get_num_threads(), "both sides must use as many threads"
        models = [measure(arguments.program, name, runs[name], case, arguments.rounds) for name in SHAPES for case in CASES]
    report = {"date": datetime.date.today().isoformat(), "cpu": environment["device_name"],
              "threads": environment["threads"], "torch": torch.__version__, "commit": environment["commit"],
              "rounds": arguments.rounds, "models": models}
    if arguments.json:
        print(json.dumps(report))
    else:
        print_table(report)


if __name__ == "__main__":
    main()
