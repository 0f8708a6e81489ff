"""Functions that the comparisons share."""
import subprocess
import sys
import tempfile
from pathlib import Path


def run_cases(cases):
    """Runs every check of {name: check} and prints a line for each, all in one process, because importing torch takes
    seconds. A check returns its result as text, and raises an exception if it fails; the others still run, and the process
    then ends with exit code 1."""
    failed = []
    for name, check in cases.items():
        try:
            print(f"{name}: {check()}", flush=True)
        except Exception as error:
            failed.append(name)
            print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
    if failed or not cases:
        sys.exit(f"{len(failed)} of {len(cases)} cases failed: {', '.join(failed)}")
    print(f"{len(cases)} cases agree")


def run(*command, code=0, cwd=None, text=None, stream=None):
    """Runs a command and returns its stdout, or its stderr if the expected exit code is not 0, or the `stream` of this name."""
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, cwd=cwd, input=text)
    assert result.returncode == code, f"{' '.join(words)[:500]}: exit code {result.returncode}: {result.stderr[-1000:]}"
    return getattr(result, stream or ("stderr" if code else "stdout"))


def sets(*changes):
    """Arguments with --set before every change."""
    return [word for change in changes for word in ("--set", change)]


def in_folder(check, *arguments):
    """A function without arguments that calls check(a new folder, *arguments)."""
    def checked():
        with tempfile.TemporaryDirectory() as folder:
            return check(Path(folder), *arguments)
    return checked
