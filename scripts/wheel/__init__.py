"""Starts the native program of this package in place of Python."""
import os
import sys
from importlib.util import find_spec
from pathlib import Path

TORCH = "@TORCH@"  # the version of LibTorch that the program was built with; no other version has the same functions
PACKAGE = Path(__file__).resolve().parent


def folder_of_torch():
    """The folder that contains the package torch. Usually it contains this package, too."""
    if (PACKAGE.parent / "torch/lib/libtorch_cpu.so").exists():
        return PACKAGE.parent
    found = find_spec("torch")
    if found is None or found.origin is None:
        sys.exit(f"metaformer: error: the package torch is missing; install it: pip install torch=={TORCH}")
    return Path(found.origin).parents[1]


def check_version(site):
    """A later `pip install` may have replaced torch."""
    installed = {path.name.removesuffix(".dist-info").split("-")[1] for path in site.glob("torch-*.dist-info")}
    if installed and TORCH not in {version.split("+")[0] for version in installed}:
        sys.exit(f"metaformer: error: needs torch {TORCH}, and {site} has {', '.join(sorted(installed))}; "
                 f"install the former: pip install torch=={TORCH}")


def environment_for(site):
    """The program itself looks for LibTorch beside this package. Elsewhere it needs LD_LIBRARY_PATH."""
    if site == PACKAGE.parent:
        return os.environ
    folders = [str(site / part) for part in ("torch/lib", "nvidia/cu13/lib", "pyarrow")]
    earlier = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(folders + ([earlier] if earlier else []))}


def main():
    site = folder_of_torch()
    check_version(site)
    os.execve(PACKAGE / "bin/metaformer", ["metaformer", *sys.argv[1:]], environment_for(site))
