"""Runs commands of documents in a folder with small data and a small GPT-2: those of docs/fine_tuning.md, and those of
docs/data.md for tokens in files. Trainings are shortened by further --set arguments; commands that need a network are left out.

usage: documented_commands.py METAFORMER ROOT
"""
import os
import re
import shutil
import sys
from pathlib import Path

import pretrained  # before transformers, which must stay offline
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from common import in_folder, run_cases
from tutorial import BLOCK, commands_of, run_command

METAFORMER, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
INDENTED = re.compile(r"^ {4}((?:metaformer|zcat) (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
SHORT = " ".join(f"--set {change}" for change in (
    "train.steps=4", "train.batch_size=2", "train.schedule.warmup_steps=1", "train.eval_interval=4", "train.checkpoint_interval=4"))
SMALL = SHORT + " --set model.layers=1 --set model.width=16 --set model.heads=2 --set model.context=16"
LINES = ["to be, or not to be: that is the question"]
DOWNLOADED = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}  # by the page's command


def set_up(folder):
    """The folder in which commands run, and their environment."""
    programs, work = folder / "bin", folder / "work"
    for path in (programs, work):
        path.mkdir()
    (programs / "metaformer").symlink_to(METAFORMER)
    return work, {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}


def write_gpt2(folder):
    pretrained.random_model(GPT2LMHeadModel, GPT2Config(**pretrained.GPT2_SIZES, n_positions=20)).save_pretrained(folder)
    tokenizer = pretrained.byte_level_tokenizer(LINES, 290, "<|endoftext|>")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    for path in folder.iterdir():
        if path.name not in DOWNLOADED:
            path.unlink()


def run_all(commands, work, environment, settings):
    for command in commands:
        run_command(f"{command} {settings}" if command.startswith("metaformer train") else command, work, environment)
    return f"{len(commands)} commands"


def check_fine_tuning(folder):
    work, environment = set_up(folder)
    write_gpt2(work / "gpt2")
    (work / "my.txt").write_text(f"{LINES[0]}\n" * 60)
    rows = [f"{LINES[0]} {number},{'ab'[number % 2]}" for number in range(60)]
    (work / "reviews.csv").write_text("\n".join(["text,label", *(row.replace("be,", "be") for row in rows)]) + "\n")
    page = (ROOT / "docs/fine_tuning.md").read_text()
    commands = [command for block in BLOCK.findall(page) for command in commands_of(block) if command.startswith("metaformer")]
    assert len(commands) >= 10, commands
    return run_all(commands, work, environment, SHORT)


def check_tokens(folder):
    """The folder `tokens` of each command is a new one: the page shows alternatives."""
    work, environment = set_up(folder)
    write_gpt2(work / "gpt2")
    text = f"{LINES[0]}\n" * 200
    (work / "corpus.jsonl.zst").write_text('{"text": "%s"}\n' % LINES[0] * 200)  # a compressed file is known by its first bytes
    (work / "texts").mkdir()
    (work / "texts/a.txt").write_text(text)
    run_command("gzip --keep texts/a.txt", work, environment)
    page = (ROOT / "docs/data.md").read_text()
    section = page[page.index("## Tokens in files"):page.index("### Tokens of other programs")]
    *prepared, trained, mixed = INDENTED.findall(section)
    assert len(prepared) == 3 and all("data prepare" in command for command in prepared) and "mixture" in mixed, section
    for command in prepared:
        shutil.rmtree(work / "tokens", ignore_errors=True)
        run_all([command.replace("vocabulary=4096", "vocabulary=280"), trained], work, environment, SMALL)
    shutil.rmtree(work / "tokens")
    for name in ("books", "code"):
        run_command(f"metaformer data prepare texts/a.txt --tokenizer byte --out tokens/{name}", work, environment)
    run_all([mixed], work, environment, SMALL)
    return f"{len(prepared) + 2} commands"


if __name__ == "__main__":
    run_cases({"docs/fine_tuning.md": in_folder(check_fine_tuning), "tokens in files": in_folder(check_tokens)})
