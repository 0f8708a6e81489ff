"""The JSON schema of configs: it is the committed one, accepts every shipped config and every key that `config explain` lists,
and refuses misspelt keys, keys of other kinds, wrong values and numbers out of range, with a message that names them.

  config_schema.py PROGRAM SOURCE_FOLDER
"""
import functools
import json
import re
import sys
from pathlib import Path

import yaml
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from common import in_folder, run, run_cases, sets

program = functools.partial(run, Path(sys.argv[1]).resolve())
SOURCES = Path(sys.argv[2])
FILE = SOURCES / "configs/metaformer.schema.json"
SCHEMA = json.loads(program("config", "schema"))
VALIDATOR = Draft7Validator(SCHEMA)
MODELINE = "# yaml-language-server: $schema="
REGENERATE = "run `metaformer config schema --out configs/metaformer.schema.json`"


class Yaml12(yaml.SafeLoader):
    """Reads plain values as YAML 1.2 does, and so do YAML language servers: 3e-3 is a number, and `on` is a text."""
    yaml_implicit_resolvers = {}


for tag, pattern, first in [("bool", r"true|false", "tf"), ("null", r"null|~|", ["n", "~", ""]),
                            ("int", r"[-+]?[0-9]+", "-+0123456789"),
                            ("float", r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", "-+.0123456789")]:
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))
Yaml12.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))


def read(text):
    """A config with texts for keys, as JSON has them."""
    def with_text_keys(value):
        if isinstance(value, dict):
            return {str(key): with_text_keys(inner) for key, inner in value.items()}
        return [with_text_keys(item) for item in value] if isinstance(value, list) else value
    return with_text_keys(yaml.load(text, Yaml12))


def complaint(config):
    """The place and message of the most relevant error; "" for a valid config."""
    error = best_match(VALIDATOR.iter_errors(config))
    return "" if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def require_valid(config, what):
    assert not complaint(config), f"{what}: {complaint(config)}"


def check_file():
    Draft7Validator.check_schema(SCHEMA)
    assert FILE.read_text() == program("config", "schema"), f"{FILE.name} is not current: {REGENERATE}"
    return f"{len(SCHEMA['definitions'])} definitions, as in the file"


def check_out(folder):
    program("config", "schema", "--out", folder / "schema.json")
    assert json.loads((folder / "schema.json").read_text()) == SCHEMA
    assert "directory" in program("config", "schema", "--out", folder, code=2) + " directory"
    return "the same schema"


def check_shipped():
    files = sorted((SOURCES / "configs").glob("*.yaml"))
    for file in files:
        first = file.read_text().splitlines()[0]
        assert first == MODELINE + FILE.name, f"{file.name}: its first line is not {MODELINE}{FILE.name}"
        require_valid(read(file.read_text()), file.name)
    assert len(files) > 90
    return f"{len(files)} configs are valid"


def nested(path, value):
    """{"train": {"steps": 1}} for train.steps."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def merged(first, second):
    if not isinstance(first, dict) or not isinstance(second, dict):
        return second
    return {key: merged(first[key], second[key]) if key in first and key in second else {**first, **second}[key]
            for key in {**first, **second}}


def with_kinds(row):
    """A config that names the kinds that a key needs, by their first names."""
    config = {}
    for condition in filter(None, row["applies"].split(", ") if ": " in row["applies"] else []):
        if ": " not in condition:
            continue  # a further name of the condition before it
        section, names = condition.split(": ")
        config = merged(config, nested(section + ".kind", names.split(" or ")[0]))
    return config


ROWS = json.loads(program("config", "explain", "--json"))


def check_rows():
    """Every key is accepted with its default, and refused if it is misspelt or has a value of another type."""
    for row in ROWS:
        key, usual = row["key"], read(row["default"] or "x")
        base = with_kinds(row)
        if "kinds" in row:
            key += ".kind"
        if row["default"] != '""' or row["expected"] == "text":
            require_valid(merged(base, nested(key, usual)), f"{key} = {usual!r}")
        assert "misspelt" in complaint(merged(base, nested(f"{row['key']}_misspelt", usual))), key
        for wrong in [{"surely": "wrong"}, *([] if row["expected"] in ("text", "path", "path or null") else ["surely wrong"])]:
            found = complaint(merged(base, nested(key, wrong)))
            assert key.removesuffix(".kind") in found, f"{key} = {wrong!r}: {found or 'accepted'}"
    return f"{len(ROWS)} keys"


def check_ranges():
    """The numbers beside the limits of every range."""
    limits = 0
    for row in ROWS:
        for words, wrong, right in [("at least", -1, 0), ("above", 0, None), ("at most", 1, 0), ("below", 0, None)]:
            found = re.search(rf", (?:.* and )?{words} ([0-9.e+-]+)", row["expected"])
            if not found or row["expected"].startswith("list") or " or all" in row["expected"] or "auto" in row["expected"]:
                continue
            base, limit = with_kinds(row), float(found[1])
            limit = int(limit) if limit == int(limit) else limit
            refused = complaint(merged(base, nested(row["key"], limit + wrong)))
            assert refused.startswith(row["key"] + ":") and str(limit) in refused, f"{row['key']} = {limit + wrong}: {refused}"
            if right is not None:
                require_valid(merged(base, nested(row["key"], limit)), f"{row['key']} = {limit}")
            limits += 1
    assert limits > 250, limits
    return f"{limits} limits"


def check_kinds():
    """The program's own dump of a config with each kind, which has every key."""
    dumped = 0
    for row in ROWS:
        if row["key"] not in ("task", "model", "model.mixer", "model.positions", "train.schedule", "data.tokenizer"):
            continue
        for kind in row["kinds"]:
            changes = {"classification": ["data.corpus=imdb"], "linear": ["task=classification", "data.corpus=imdb"],
                       "encoder_decoder": ["task=sequence_to_sequence", "data.corpus=multi30k"]}.get(kind, [])
            if kind == "sequence_to_sequence":
                changes = ["model=encoder_decoder", "data.corpus=multi30k"]
            try:
                text = program("config", "dump", *sets(*changes, f"{row['key']}={kind}"))
            except AssertionError:
                continue  # a rule between keys
            require_valid(read(text), f"{row['key']}={kind}")
            dumped += 1
    assert dumped > 40, dumped
    return f"{dumped} dumps"


ACCEPTED = {
    "a name in place of a section": "model: {mixer: metric}\ntask: sort",
    "options without the kind, which a base names": "base: shakespeare_base.yaml\nmodel: {mixer: {rank: 3}}\n"
                                                    "data: {label_field: 2}",
    "several bases": "base: [one.yaml, two.yaml]\ntrain: {steps: 1e3}",
    "a number or a word": "model: {mixer: {kind: lsh, buckets: auto}, norm: rms_norm}",
    "an even number": "model: {mixer: {kind: lsh, buckets: 8}}",
    "a list of mixers": "model: {mixer: [{mixer: mamba2, layers: 3}, scaled_dot_product, {kind: metric, score: distance}]}",
    "a list with options of an item": "model: {mixer: {kind: [mamba2, metric], 1: {mixer: {score: distance}}}}",
    "options of an item of a base's list": "model: {mixer: {0: {layers: 2}}}",
    "null": "train: {epochs: null}\nmodel: {mixer: {kind: scaled_dot_product, score_std: null}}",
    "a mixture": "data: {mixture: [web=0.7, books=3e-1]}",
    "the number of a column": "task: classification\ndata: {text_field: 1, label_field: 2}",
    "an empty text": "data: {tokenizer: {kind: word, joiners: ''}}",
    "rates by name": "train: {rate_factors: [mixer.projection=0.3]}",
}

# A config, and words of the message.
REFUSED = {
    "a misspelt key": ("train: {learning_rat: 1e-3}", ["train:", "learning_rat"]),
    "a misspelt section": ("trian: {steps: 1}", ["trian"]),
    "a key of another mixer": ("model: {mixer: {kind: metric, rank: 4}}", ["model.mixer:", "rank"]),
    "a misspelt key without the kind": ("model: {mixer: {rnak: 4}}", ["model.mixer:", "rnak"]),
    "a key of another task": ("task: {kind: sort, loss: token}", ["task:", "loss"]),
    "data of another task": ("task: language_model\ndata: {label_field: label}", ["data:", "label_field"]),
    "data of a task without data": ("task: sort\ndata: {path: x.txt}", ["x.txt"]),
    "training of the linear model": ("task: classification\nmodel: linear\ntrain: {learning_rate: 1}",
                                     ["train:", "learning_rate"]),
    "an unknown kind": ("model: {mixer: {kind: metrc}}", ["model.mixer.kind:", "metrc"]),
    "an unknown kind as a name": ("model: {mixer: metrc}", ["model.mixer:", "metrc"]),
    "an unknown name": ("model: {norm: {position: middle}}", ["model.norm.position:", "middle"]),
    "a number too small": ("train: {steps: 0}", ["train.steps:", "0"]),
    "a number too large": ("model: {dropout: 1}", ["model.dropout:", "1"]),
    "a fraction of a step": ("train: {steps: 1.5}", ["train.steps:", "1.5"]),
    "a text for a number": ("train: {learning_rate: fast}", ["train.learning_rate:", "fast"]),
    "a text for a truth value": ("model: {bias: yes}", ["model.bias:", "yes"]),
    "an odd number of buckets": ("model: {mixer: {kind: lsh, buckets: 3}}", ["model.mixer.buckets:", "3"]),
    "three moments": ("train: {optimizer: {betas: [0.9, 0.99, 0.999]}}", ["train.optimizer.betas:", "0.999"]),
    "a moment of 1": ("train: {optimizer: {betas: [0.9, 1]}}", ["train.optimizer.betas.1:", "1"]),
    "an empty list of mixers": ("model: {mixer: []}", ["model.mixer:", "[]"]),
    "a wrong mixer in a list": ("model: {mixer: [{mixer: mamba2, layers: 0}]}", ["model.mixer.0.layers:", "0"]),
    "a misspelt option in a list": ("model: {mixer: [{kind: metric, scor: distance}]}", ["model.mixer.0:", "scor"]),
    "a mixture without a weight": ("data: {mixture: [web]}", ["data.mixture.0:", "web"]),
    "an empty path": ("data: {path: ''}", ["data.path:", "''"]),
    "an empty section": ("train:", ["train:", "None"]),
}


def check_accepted(text):
    require_valid(read(text), text)
    return "accepted"


def check_refused(text, words):
    found = complaint(read(text))
    assert found and all(word in found for word in words), f"{text!r}: {found or 'accepted'}; expected {words}"
    return found[:150]


if __name__ == "__main__":
    run_cases({"the committed schema": check_file, "--out": in_folder(check_out), "shipped configs": check_shipped,
               "every key": check_rows, "every range": check_ranges, "every kind": check_kinds,
               **{f"accepts {what}": functools.partial(check_accepted, text) for what, text in ACCEPTED.items()},
               **{f"refuses {what}": functools.partial(check_refused, *case) for what, case in REFUSED.items()}})
