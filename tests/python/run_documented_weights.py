"""Runs the code of docs/weights_in_python.md: its function on dump_model's weights, the whole script on a trained run. Also
compares the names of tensors in docs/run_directory.md with those of models and optimisers of every kind: every written
name must be documented, and every documented name must be written.

usage: run_documented_weights.py DUMP_MODEL METAFORMER
"""
import ast
import json
import re
import sys
from pathlib import Path

from safetensors.torch import load_file

import compare_model
from common import in_folder, run, run_cases, sets

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, TABLES = DOCS / "weights_in_python.md", DOCS / "run_directory.md"
MOST_LINES = 30
TOLERANCE = 1e-5  # relative L2 of the logits, float32 on both sides
RUN, PROMPT, HEADS = '"runs/latest"', "ROMEO:", 4

# The letter after the prompt is rare elsewhere, so that guessing the most frequent character is not enough.
TEXT = "ROMEO:No, that is not it.\nJULIET:It is.\n"
CONFIG = """
data: {path: text.txt}
model: {layers: 2, heads: 4, width: 32, context: 32}
train: {steps: 150, batch_size: 8, learning_rate: 0.01, eval_interval: 50, schedule: {warmup_steps: 10}}
"""


def check_function(folder, dump_model, definition, mixer):
    namespace = {}
    exec(definition, namespace)
    run(dump_model, folder, f"model.mixer.kind={mixer}", f"model.heads={HEADS}")
    weights, expected = load_file(folder / "model.safetensors"), load_file(folder / "expected.safetensors")
    difference = namespace["logits"](weights, expected["ids"], HEADS) - expected["logits"]
    error = (difference.norm() / expected["logits"].norm()).item()
    assert error <= TOLERANCE, error
    return f"logits differ by {error:.1e}"


def write_config(folder):
    (folder / "text.txt").write_text(TEXT * 100)
    (folder / "small.yaml").write_text(CONFIG)


def check_script(folder, metaformer, script):
    write_config(folder)
    run(metaformer, "train", "--config", "small.yaml", "--out", "run", "--quiet", cwd=folder)
    sample = json.loads(run(metaformer, "sample", "--run", "run", "--prompt", PROMPT, "--temperature", "0", "--tokens", "1",
                            "--json", cwd=folder))
    assert RUN in script and f'"{PROMPT}"' in script
    printed = run(sys.executable, "-c", script.replace(RUN, '"run"'), cwd=folder)
    assert ast.literal_eval(printed) == sample["text"] == "N", (printed, sample["text"])
    return f"after {PROMPT!r} comes {printed.strip()}"


# Models that together have every parameter.
SMALL = ["model.layers=2", "model.heads=2", "model.width=8", "model.context=9"]
PAIRS = ["task=sequence_to_sequence", "model.kind=encoder_decoder"]
XL = "{kind: transformer_xl, shared_biases: false}"
NAMED = [
    *([*SMALL, f"model.mixer={mixer}", "model.bias=true"] for name, mixer in compare_model.MIXERS.items()
      if name != "fourier"),  # which has no weights, and predicts no next token
    *([*SMALL, f"model.mixer={mixer}", f"model.positions={positions}"]
      for mixer in ("scaled_dot_product", "metric", "{kind: quadratic, form: full}")
      for positions in ("alibi", "t5", "shaw", "transformer_xl", XL)),
    *([*SMALL, *norm] for norm in compare_model.NORMS.values()),
    [*SMALL, "model.convolution=3"],
    *([*SMALL, f"model.feed_forward={branch}"] for branch in compare_model.FEED_FORWARDS[-3:]),
    *([*SMALL, f"task={task}", "model.bias=true", f"model.embedding.tie={tie}"]
      for task in ("language_model", "masked_language_model") for tie in ("true", "false")),
    *([*SMALL, "task=classification", f"task.head={{kind: {head}, recalibrate: {shift}}}", "model.bias=true",
       "model.embedding.scale=log_count_ratio", "model.embedding.ngrams={order: 2, buckets: 16}"]
      for head in compare_model.HEADS for shift in ("true", "false")),
    *(["task=classification", "model.width=12", "model.context=9", *overrides]
      for overrides in compare_model.REGION_MODELS.values()),
    *([*PAIRS, *SMALL, f"model.shared_embedding={shared}", f"model.cross_mixer={mixer}", f"model.norm.position={position}"]
      for mixer in ("scaled_dot_product", "metric", "quadratic", "{kind: metric, qk_norm: true, values: own}")
      for shared, position in (("true", "pre"), ("false", "both"))),
    *([f"model={model}"] for model in compare_model.OTHERS),
]
STATES = [*([f"train.optimizer={optimizer}"] for optimizer in (
              "adamw", "adam", "{kind: sgd, momentum: 0.9}", "adagrad", "muon")),
          ["train.precision=fp16"], ["train.weight_average.decay=0.9"], ["model.memory=8", "model.positions=transformer_xl"],
          ["model={kind: lstm, width: 8, context: 8, carry_state: true}"]]


def rows_of_tables(section):
    """(first cell of the head, names in the first cell) of each row of the tables under a heading."""
    text = TABLES.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines())
        for row in rows:
            yield head[0], re.findall(r"`([^`]+)`", row[0])


def documented_names():
    """{(name, head of its table): regular expression of the names that it represents}"""
    names = {}
    for head, documented in rows_of_tables("The weights in Python"):
        for name in documented:
            pattern = re.escape(name).replace(r"\.I\.", r"\.\d+\.").replace(r"\.S\.", r"\.\d+\.")
            pattern = re.sub(r"lI$", r"l\\d+", pattern)
            if "transformer." in head:
                pattern = r"(transformer|encoder)\." + pattern.replace(r"\.mixer\.", r"\.(mixer|cross_mixer)\.")
                pattern = re.sub(r"\\.weight$", r"\\.(weight|bias)", pattern)  # with model.bias
            names[name, head] = re.compile(pattern)
    names["query_projection.weight", "cross_mixer"] = re.compile(r"transformer\.blocks\.\d+\.cross_mixer\.query_projection\.(weight|bias)")
    return names


def check_names(folder, dump_model, metaformer):
    arguments = [word for i, overrides in enumerate(NAMED) for word in ("--", folder / str(i), *overrides)]
    run(dump_model, *arguments[1:])
    documented, written = documented_names(), trained_names(folder, metaformer)
    for i in range(len(NAMED)):
        written.update(load_file(folder / f"{i}/model.safetensors"))
    unknown = sorted(name for name in written if not any(pattern.fullmatch(name) for pattern in documented.values()))
    assert not unknown, f"docs/run_directory.md does not name {unknown}"
    linear = {"weight", "bias"}  # of model.kind linear, which is no network
    unused = sorted(name for (name, _), pattern in documented.items()
                    if name not in linear and not any(pattern.fullmatch(other) for other in written))
    assert not unused, f"docs/run_directory.md names {unused}, which no model has"
    return f"{len(written)} names of tensors are documented, and the state of {len(STATES)} trainings"


def trained_names(folder, metaformer):
    """Asserts that the names in state.safetensors, without the parameters' names in them, are documented. Returns the names of
    the parameters."""
    page = TABLES.read_text().split("\n## checkpoints/\n")[1].split("\n## ")[0]
    documented, written = {name.split(".NAME")[0] for name in re.findall(r"`([a-z_.N]+[A-Za-z]*)`", page)}, set()
    write_config(folder)
    for i, overrides in enumerate(STATES):
        run(metaformer, "train", "--config", "small.yaml", "--out", f"run{i}", "--quiet",
            *sets("train.steps=1", "train.schedule.warmup_steps=0", *overrides), cwd=folder)
        checkpoint = folder / f"run{i}/checkpoints/last"
        parameters = load_file(checkpoint / "model.safetensors")
        written.update(parameters)
        for name in load_file(checkpoint / "state.safetensors"):
            of = max((parameter for parameter in parameters if name.endswith("." + parameter)), key=len, default=None)
            kind = re.sub(r"\.\d+$", ".N", name if of is None else name[:-len(of) - 1])
            assert kind in documented, f"docs/run_directory.md does not name {name} of {overrides}"
    return written


if __name__ == "__main__":
    dump_model, metaformer = (Path(argument).resolve() for argument in sys.argv[1:])
    script, other_mixer = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(script.splitlines()) <= MOST_LINES
    definition = script[:script.index("\nrun, prompt =")]
    lines_of_mixer = re.compile(r"^ +qkv = .*?^ +t = .*?\n", re.MULTILINE | re.DOTALL)
    with_metric = lines_of_mixer.sub(lambda _: other_mixer, definition)
    run_cases({"the function": in_folder(check_function, dump_model, definition, "scaled_dot_product"),
               "the function with metric attention": in_folder(check_function, dump_model, with_metric, "metric"),
               "the script": in_folder(check_script, metaformer, script),
               "the names of tensors": in_folder(check_names, dump_model, metaformer)})
