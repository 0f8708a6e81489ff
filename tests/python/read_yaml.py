"""Reads the program's YAML with PyYAML: the values and types must be those of its JSON.

  read_yaml.py PROGRAM
"""
import functools
import json
import sys
from pathlib import Path

import yaml

from common import in_folder, run, run_cases, sets

program = functools.partial(run, Path(sys.argv[1]).resolve())
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


def differences(read, expected, path=""):
    """The keys with different values or types."""
    if isinstance(expected, dict) and set(expected) == {"kind"} and not isinstance(read, dict):
        read = {"kind": read}  # the short form
    if type(read) is type(expected) and isinstance(expected, dict) and list(read) == list(expected):
        return [line for key in expected for line in differences(read[key], expected[key], f"{path}.{key}")]
    if type(read) is type(expected) and isinstance(expected, list) and len(read) == len(expected):
        return [line for i, item in enumerate(expected) for line in differences(read[i], item, f"{path}[{i}]")]
    same = type(read) is type(expected) and read == expected and not isinstance(expected, dict)  # keys must have the same order
    return [] if same else [f"{path}: {read!r} and {expected!r}"]


def check(text, expected):
    found = differences(yaml.safe_load(text), expected)
    assert not found, "PyYAML reads other values than the program:\n  " + "\n  ".join(found)
    return "the same values"


def check_dump(overrides):
    return check(program("config", "dump", *sets(*overrides)), json.loads(program("config", "dump", "--json", *sets(*overrides))))


def check_run(folder):
    (folder / "text.txt").write_text("to be, or not to be\n" * 100)
    program("train", "--quiet", "--device", "cpu", "--out", "run", "--config", "shakespeare_metric.yaml", *sets(
        "data.path=text.txt", "model={layers: 1, heads: 2, width: 16, context: 16}", "data.tokenizer=character",
        "train={steps: 1, learning_rate: 1e-5, batch_size: 2, schedule: {kind: constant, warmup_steps: 0}}"), cwd=folder)
    return check((folder / "run/config.yaml").read_text(),
                 json.loads(program("config", "dump", "--json", "--config", folder / "run/config.yaml")))


def check_rates(folder):
    """Values that the program writes one by one."""
    (folder / "space.yaml").write_text("train.learning_rate: {log_uniform: [1e-5, 1.00001e-5]}\n")
    drawn = program("config", "draw", "--space", folder / "space.yaml", "--index", "0").split("=", 1)[1]
    changes = program("config", "dump", "--changes", *sets("train.learning_rate=1e-5", "train.schedule.floor=1e-7"))
    values = [yaml.safe_load(drawn), *yaml.safe_load(changes).values()]
    assert len(values) > 1 and all(isinstance(value, float) for value in values), (drawn, changes)
    return values


if __name__ == "__main__":
    run_cases({**{what: lambda overrides=overrides: check_dump(overrides) for what, overrides in OVERRIDES.items()},
               "a run's config.yaml": in_folder(check_run), "rates that are drawn or changed": in_folder(check_rates)})
