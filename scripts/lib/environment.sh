# Shared by the scripts of this folder: where things are, how they speak, how many jobs fit. To be sourced.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the variables are for the scripts that source this file
unset CDPATH  # with it `cd` may go elsewhere, and prints where it went
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd -P)
deps="$root/.deps"
venv="$deps/venv"
python="$venv/bin/python"
build="$root/build/release"
setup_stamp="$deps/setup.stamp"

say() { printf 'metaformer: %s\n' "$*" >&2; }
die() {
  local code=$1
  shift
  say "error: $*"
  exit "$code"
}

# One compiler that includes torch needs up to 2 GB: as many jobs as cores, but no more than memory allows.
build_jobs() {
  local cores memory_kb jobs
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  jobs=$((memory_kb / 2000000))
  ((jobs >= 1)) || jobs=1
  ((jobs <= cores)) || jobs=$cores
  echo "$jobs"
}

# What was set up: "cpu" or "cuda", empty when nothing was.
installed_variant() { [[ -f $setup_stamp ]] && sed -n 's/^variant=//p' "$setup_stamp"; }
has_test_packages() { [[ -f $setup_stamp ]] && grep -qx 'tests=yes' "$setup_stamp"; }

# The stamp repeats what decides the set-up, so that a change of it sets up again.
setup_inputs() {
  { cat "$root/scripts/setup.sh" "$root"/scripts/requirements/*.txt; echo "${LIBTORCH:-}"; } | cksum | cut -d' ' -f1
}
setup_is_current() { [[ -f $setup_stamp ]] && grep -qx "inputs=$(setup_inputs)" "$setup_stamp"; }
