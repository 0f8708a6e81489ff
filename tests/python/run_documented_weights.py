"""Runs the code of docs/weights_in_python.md: its function on dump_model's weights, the whole script on a trained run.

usage: run_documented_weights.py DUMP_MODEL METAFORMER
"""
import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors.torch import load_file

PAGE = Path(__file__).resolve().parents[2] / "docs/weights_in_python.md"
MOST_LINES = 30
TOLERANCE = 1e-5  # relative L2 of the logits, float32 on both sides
RUN, PROMPT, HEADS = '"runs/latest"', "ROMEO:", 4

# After the prompt comes a letter that is rare elsewhere: guessing the most frequent character is not enough.
TEXT = "ROMEO:No, that is not it.\nJULIET:It is.\n"
CONFIG = """
data: {path: text.txt}
model: {layers: 2, heads: 4, width: 32, context: 32}
train: {steps: 150, batch_size: 8, learning_rate: 0.01, eval_interval: 50, schedule: {warmup_steps: 10}}
"""


def check_function(dump_model, definition, mixer):
    namespace = {}
    exec(definition, namespace)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([dump_model, folder, f"model.mixer.kind={mixer}", f"model.heads={HEADS}"], check=True)
        weights = load_file(Path(folder) / "model.safetensors")
        expected = load_file(Path(folder) / "expected.safetensors")
    difference = namespace["logits"](weights, expected["ids"], HEADS) - expected["logits"]
    error = (difference.norm() / expected["logits"].norm()).item()
    print(f"{mixer}: logits differ by {error:.1e}")
    assert error <= TOLERANCE


def check_script(metaformer, script):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text.txt").write_text(TEXT * 100)
        (Path(folder) / "small.yaml").write_text(CONFIG)
        train = [metaformer, "train", "--config", "small.yaml", "--out", "run", "--quiet"]
        subprocess.run(train, check=True, cwd=folder)
        sample = json.loads(subprocess.check_output(
            [metaformer, "sample", "--run", "run", "--prompt", PROMPT, "--temperature", "0", "--tokens", "1", "--json"],
            cwd=folder))
        assert RUN in script and f'"{PROMPT}"' in script
        printed = subprocess.check_output([sys.executable, "-c", script.replace(RUN, '"run"')], cwd=folder, text=True)
    print(f"after {PROMPT!r} comes {printed.strip()}")
    assert ast.literal_eval(printed) == sample["text"] == "N", (printed, sample["text"])


def main():
    dump_model, metaformer = (Path(argument).resolve() for argument in sys.argv[1:])
    script, other_mixer = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(script.splitlines()) <= MOST_LINES
    definition = script[:script.index("\nrun, prompt =")]
    check_function(dump_model, definition, "metric")
    lines_of_metric = re.compile(r"^ +p = .*?^ +t = .*?\n", re.MULTILINE | re.DOTALL)
    check_function(dump_model, lines_of_metric.sub(lambda _: other_mixer, definition), "scaled_dot_product")
    check_script(metaformer, script)


if __name__ == "__main__":
    main()
