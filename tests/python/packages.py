"""Installs packages of scripts/package.sh in empty folders, and trains, evaluates and samples there without the environment's
variables. The text to train on is that of the documents.

usage: packages.py [--from-index] [--suite NAME] PACKAGE...

A wheel is installed into a new environment of Python. Its torch is that of .deps/venv; with --from-index, or without that, pip
downloads torch (4.6 GB). A tarball is unpacked into a folder, and into a bare Debian that debootstrap makes (bookworm, or the suite
NAME), which needs root; otherwise that case is skipped.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from common import in_folder, run, run_cases, sets

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))[.-]")
SHORT = sets("train.steps=20", "train.schedule.warmup_steps=5", "data.path=text.txt")


def text_of_documents():
    return "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))


def clean(home, *words, options=()):
    """A command without the environment's variables."""
    return ["env", "-i", *options, "PATH=/usr/bin:/bin", f"HOME={home}", *words]


def first_steps(start, version, work):
    """From the version to a sample by the command `start`, which runs in the folder `work`."""
    begin = time.monotonic()
    (work / "text.txt").write_text(text_of_documents())
    config = ("--config", "shakespeare_metric.yaml", *SHORT)
    said = run(*start, "--version", cwd=work)
    assert said == f"metaformer {version}\n", said
    checked = run(*start, "config", "check", *config, cwd=work)
    assert "share/metaformer/configs/shakespeare_metric.yaml" in checked, checked
    run(*start, "train", *config, "--offline", "--quiet", "--device", "cpu", cwd=work)
    scores = run(*start, "evaluate", "--json", "--device", "cpu", cwd=work)
    assert '"loss"' in scores, scores
    sample = run(*start, "sample", "--prompt", "The", "--tokens", "50", "--device", "cpu", cwd=work)
    assert sample.startswith("The") and len(sample) >= 53, sample
    return time.monotonic() - begin


def read_parquet(start, work):
    """Arrow's library is found. Without pyarrow in .deps/venv there is no such file to read."""
    python = ROOT / ".deps/venv/bin/python"
    code = "import pyarrow, pyarrow.parquet as p; p.write_table(pyarrow.table({'text': ['one', 'two']}), 'two.parquet')"
    if not python.exists() or subprocess.run([python, "-c", code], cwd=work, capture_output=True).returncode:
        return "no Parquet file to read"
    run(*start, "data", "prepare", "two.parquet", "--tokenizer", "byte", "--out", "tokens", cwd=work)
    return "reads Parquet"


def found_torch():
    """The folder of .deps/venv with the package torch, or None."""
    return next((path.parents[2] for path in ROOT.glob(".deps/venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so")), None)


def new_environment(folder):
    """The interpreter and the folder of packages of a new environment with pip."""
    venv.create(folder, with_pip=True)
    return folder / "bin/python", next(folder.glob("lib/python3*/site-packages"))


def has_parquet(site):
    return (site / "metaformer/lib/metaformer/libmetaformer_parquet.so").exists()


def version_of(package):
    return re.match(r"metaformer-([0-9.]+)", package.name)[1].rstrip(".")


def wheel_beside_torch(folder, wheel, from_index):
    """The usual case: pip has installed both into one folder."""
    work = folder / "work"
    work.mkdir()
    begin = time.monotonic()
    python, site = new_environment(folder / "new environment")
    torch = None if from_index else found_torch()
    if torch is None:
        run(python, "-m", "pip", "install", "--quiet", wheel)
    else:
        for path in (torch / name for name in ("torch", "nvidia", "pyarrow")):
            if path.exists():
                (site / path.name).symlink_to(path)
        for path in torch.glob("torch-*.dist-info"):
            (site / path.name).symlink_to(path)
        run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    installed = time.monotonic() - begin
    start = clean(folder, python.parent / "metaformer")
    steps = first_steps(start, version_of(wheel), work)
    run(*clean(folder, python, "-m", "metaformer", "--version"))
    parquet = read_parquet(start, work) if has_parquet(site) and (site / "pyarrow").exists() else "no pyarrow"
    return f"installed in {installed:.1f} s, first sample {steps:.1f} s later; {parquet}"


def wheel_with_torch_elsewhere(folder, wheel):
    """As with --system-site-packages: torch is on Python's path, and in another folder."""
    torch = found_torch()
    if torch is None:
        return "SKIPPED: no torch in .deps/venv"
    python, site = new_environment(folder / "environment")
    (site / "elsewhere.pth").write_text(f"{torch}\n")
    # With all packages of torch there, pip finds the wheel's requirements satisfied.
    complete = [] if (torch / "sympy").exists() else ["--no-deps"]
    run(python, "-m", "pip", "install", "--quiet", "--no-index", *complete, wheel)
    start = clean(folder, python.parent / "metaformer")
    steps = first_steps(start, version_of(wheel), folder)
    if has_parquet(site) and (torch / "pyarrow").exists():
        read_parquet(start, folder)
    return f"first sample after {steps:.1f} s; {'requirements satisfied' if not complete else 'requirements not checked'}"


def wheel_without_its_torch(folder, wheel):
    """No torch, or another version: one line that names the version."""
    python, site = new_environment(folder / "environment")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    start = clean(folder, python.parent / "metaformer", "--version")
    absent = run(*start, code=1)
    (site / "torch/lib").mkdir(parents=True)
    for path in ("torch/__init__.py", "torch/lib/libtorch_cpu.so"):
        (site / path).touch()
    (site / "torch-1.13.1+cpu.dist-info").mkdir()
    other = run(*start, code=1)
    for message, part in ((absent, "torch is missing"), (other, "has 1.13.1+cpu")):
        assert message.count("\n") == 1 and part in message and "pip install torch==" in message, message
    return absent.strip()


def unpack(tarball, folder):
    """The tarball's only folder."""
    run("tar", "-xf", tarball, "-C", folder)
    return folder / tarball.name.removesuffix(".tar.xz")


def tarball_in_any_folder(folder, tarball):
    begin = time.monotonic()
    unpacked = unpack(tarball, folder)
    moved = folder / "moved to a name with spaces"
    unpacked.rename(moved)
    installed = time.monotonic() - begin
    listed = run(*clean(folder, "ldd", moved / "bin/metaformer"))
    outside = [line for line in listed.splitlines() if str(moved) not in line and not SYSTEM.match(Path(line.split()[0]).name)]
    assert not outside, f"libraries from outside the tarball: {outside}"
    (folder / "link").symlink_to(moved / "bin/metaformer")
    start = clean(folder, folder / "link")
    steps = first_steps(start, version_of(tarball), folder)
    with_parquet = (moved / "lib/metaformer/libmetaformer_parquet.so").exists()
    parquet = read_parquet(start, folder) if with_parquet else "built without Parquet"
    for text in ("LICENSE", "THIRD_PARTY_LICENSES.md", "licenses/libcurl*/copyright"):
        assert any(path.stat().st_size > 0 for path in (moved / "share/doc/metaformer").glob(text)), f"no {text}"
    return f"unpacked in {installed:.1f} s, first sample {steps:.1f} s later; {parquet}"


def tarball_in_bare_system(folder, tarball, suite):
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        return "SKIPPED: a bare Debian needs root and debootstrap (apt-get install debootstrap)"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        return "SKIPPED: a bare Debian needs a mount namespace, and unshare --mount is not permitted"
    system = folder / "system"
    run("debootstrap", "--variant=minbase", suite, system)
    unpacked = unpack(tarball, system / "opt")
    (system / "usr/local/bin/metaformer").symlink_to(f"/opt/{unpacked.name}/bin/metaformer")
    (system / "work").mkdir()
    start = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', system,
             *clean("/work", "/usr/local/bin/metaformer", options=("-C", "/work"))]
    return f"{suite}: first sample after {first_steps(start, version_of(tarball), system / 'work'):.1f} s"


def cases_of(package, options):
    if package.suffix == ".whl":
        return {"wheel beside torch": in_folder(wheel_beside_torch, package, options.from_index),
                "wheel with torch in another folder": in_folder(wheel_with_torch_elsewhere, package),
                "wheel without its torch": in_folder(wheel_without_its_torch, package)}
    return {"tarball in any folder": in_folder(tarball_in_any_folder, package),
            "tarball in a bare system": in_folder(tarball_in_bare_system, package, options.suite)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from-index", action="store_true")
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("packages", nargs="+", type=Path)
    chosen = parser.parse_args()
    found = {name: case for package in chosen.packages for name, case in cases_of(package.resolve(strict=True), chosen).items()}
    run_cases(found)
