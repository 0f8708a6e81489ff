"""Runs the commands of docs/your_own_data.md, section by section, each in an empty folder with the program on PATH. Every command
must succeed, and the last one of a section must print something.

usage: tutorial.py METAFORMER ROOT
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from common import in_folder, run_cases

METAFORMER, ROOT = Path(sys.argv[1]), Path(sys.argv[2])
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOST_COMMANDS = 6


def commands_of(block):
    """The commands of a block, each with its continued lines and its here-document."""
    commands, lines = [], iter(block.splitlines())
    for line in lines:
        command = [line]
        while command[-1].endswith("\\"):
            command.append(next(lines))
        if here := re.search(r"<<'(\w+)'$", line):
            while command[-1] != here[1]:
                command.append(next(lines))
        commands.append("\n".join(command))
    return commands


def run_command(command, folder, environment):
    result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                            errors="replace")  # a model of bytes may sample anything
    assert result.returncode == 0, f"{command}: exit code {result.returncode}: {result.stderr[-1000:]}"
    return result.stdout


def check_section(folder, blocks, most=MOST_COMMANDS):
    """`metaformer` is the program of the build, whatever its path is."""
    programs, work = folder / "bin", folder / "work"
    for path in (programs, work):
        path.mkdir()
    (programs / "metaformer").symlink_to(METAFORMER.resolve())
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}
    commands = [command for block in blocks for command in commands_of(block)]
    assert len(commands) <= most, f"{len(commands)} commands are more than {most}"
    outputs = [run_command(command, work, environment) for command in commands]
    assert outputs[-1].strip(), f"{commands[-1]} prints nothing"
    return f"{len(commands)} commands; the last one prints {outputs[-1].strip()!r}"


if __name__ == "__main__":
    page = (ROOT / "docs/your_own_data.md").read_text()
    sections = {name: BLOCK.findall(text) for name, text in SECTION.findall(page)}
    another = sections.pop("Another mixer")  # continues the section on texts
    cases = {name: in_folder(check_section, blocks) for name, blocks in sections.items() if blocks}
    assert len(cases) == 3, f"the page has commands in {len(cases)} sections: {', '.join(cases)}"
    cases["Another mixer"] = in_folder(check_section, sections["Texts"] + another, MOST_COMMANDS + 3)
    run_cases(cases)
