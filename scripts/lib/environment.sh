# Shared by the scripts of this folder: paths, messages, number of jobs. To be sourced.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the variables are for the scripts that source this file
unset CDPATH  # with it `cd` may change into another folder, and prints its name
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd -P)
deps="$root/.deps"
venv="$deps/venv"
python="$venv/bin/python"
build="$root/build/release"
setup_stamp="$deps/setup.stamp"

# shellcheck source=scripts/lib/messages.sh
source "$root/scripts/lib/messages.sh"

# One compiler needs up to 2 GB for a file that includes torch: one job per core, limited by memory.
build_jobs() {
  local cores memory_kb jobs
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  jobs=$((memory_kb / 2000000))
  ((jobs >= 1)) || jobs=1
  ((jobs <= cores)) || jobs=$cores
  echo "$jobs"
}

# The variant of the set-up: "cpu" or "cuda", empty without a set-up.
installed_variant() { [[ -f $setup_stamp ]] && sed -n 's/^variant=//p' "$setup_stamp"; }
has_test_packages() { [[ -f $setup_stamp ]] && grep -qx 'tests=yes' "$setup_stamp"; }

# The stamp contains a checksum of the set-up's inputs, so that a change of them sets up again.
setup_inputs() {
  { cat "$root/scripts/setup.sh" "$root"/scripts/requirements/{libtorch,python}.txt; echo "${LIBTORCH:-}"; } | cksum | cut -d' ' -f1
}
setup_is_current() { [[ -f $setup_stamp ]] && grep -qx "inputs=$(setup_inputs)" "$setup_stamp"; }
