"""The cases of a comparison, all in one process, because importing torch takes seconds."""
import sys


def run_cases(cases):
    """Runs every check of {name: check} and prints a line for each. A check returns what it found, and raises when that is
    wrong; the others still run, and the process then ends with exit code 1."""
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
