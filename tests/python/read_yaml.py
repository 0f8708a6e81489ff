"""What the program writes as YAML, read by PyYAML: the values and types are those of its JSON.

  read_yaml.py PROGRAM
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

PROGRAM = Path(sys.argv[1]).resolve()
OVERRIDES = {
    "a rate below 1e-4": ["train.learning_rate=1e-5", "train.schedule.floor=1e-7"],
    "large and whole numbers": ["train.optimizer.weight_decay=1", "train.clip=1e20", "model.dropout=0"],
    "texts that look like other types": ["data.text_field='1'", "data.path=2024-01-01", "train.init_from='null'"],
    "texts that look like booleans": ["data.text_field=yes", "data.path='on'", "train.freeze=[off, 'true', '1e-05', n]"],
    "an exponent without a point as a text": ["data.path='1e-05'", "data.validation_path='0x1f'"],
    "a list of numbers": ["train.optimizer.betas=[0, 1e-9]"],
    "another task": ["task=classification", "data.corpus=imdb", "data.tokenizer={kind: word, joiners: ''}"],
    "a linear model": ["task=classification", "data.corpus=imdb", "model={kind: linear, cost: 1e-6}"],
}


def run(*arguments, cwd=None):
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True, cwd=cwd).stdout


def differences(read, expected, path=""):
    """Keys whose values or types differ."""
    if isinstance(expected, dict):
        if set(expected) == {"kind"} and not isinstance(read, dict):
            read = {"kind": read}  # the short form
        if not isinstance(read, dict) or list(read) != list(expected):
            return [f"{path}: {read!r} and {expected!r}"]
        return [line for key in expected for line in differences(read[key], expected[key], f"{path}.{key}")]
    if isinstance(expected, list):
        if not isinstance(read, list) or len(read) != len(expected):
            return [f"{path}: {read!r} and {expected!r}"]
        return [line for i, item in enumerate(expected) for line in differences(read[i], item, f"{path}[{i}]")]
    return [] if type(read) is type(expected) and read == expected else [f"{path}: {read!r} and {expected!r}"]


def check(what, text, expected):
    found = differences(yaml.safe_load(text), expected)
    if found:
        sys.exit(f"{what}: PyYAML reads other values than the program:\n  " + "\n  ".join(found))


def main():
    for what, overrides in OVERRIDES.items():
        arguments = [word for override in overrides for word in ("--set", override)]
        check(what, run("config", "dump", *arguments), json.loads(run("config", "dump", "--json", *arguments)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text("to be, or not to be\n" * 100)
        run("train", "--quiet", "--device", "cpu", "--out", "run", "--config", "shakespeare_metric.yaml", "--set",
            "data.path=text.txt", "--set", "model={layers: 1, heads: 2, width: 16, context: 16}", "--set",
            "train={steps: 1, learning_rate: 1e-5, batch_size: 2, schedule: {kind: constant, warmup_steps: 0}}",
            "--set", "data.tokenizer=character", cwd=folder)
        check("a run's config.yaml", (folder / "run/config.yaml").read_text(),
              json.loads(run("config", "dump", "--json", "--config", folder / "run/config.yaml")))
        (folder / "space.yaml").write_text("train.learning_rate: {log_uniform: [1e-5, 1.00001e-5]}\n")
        drawn = run("config", "draw", "--space", folder / "space.yaml", "--index", "0").split("=", 1)[1]
        if not isinstance(yaml.safe_load(drawn), float):
            sys.exit(f"config draw: PyYAML reads {drawn!r} as a text")
        changes = run("config", "dump", "--changes", "--set", "train.learning_rate=1e-5", "--set",
                      "train.schedule.floor=1e-7")
        for key, value in yaml.safe_load(changes).items():
            if not isinstance(value, float):
                sys.exit(f"config dump --changes: {key}: PyYAML reads {value!r} as a text")
    print("PyYAML reads the same values")


if __name__ == "__main__":
    main()
