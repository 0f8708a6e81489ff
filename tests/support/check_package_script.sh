#!/usr/bin/env bash
# scripts/package.sh in a copy of the scripts with a stand-in for the program: it stops with one line and exit code 2 without a build
# and for another build than the requested one.
set -euo pipefail
scripts=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../../scripts
tree=$(mktemp -d "${TMPDIR:-/tmp}/metaformer tree XXXXXX")
trap 'rm -rf "$tree"' EXIT
fail() {
  echo "$*" >&2
  exit 1
}

cp -r "$scripts" "$tree/scripts"
mkdir "$tree/src" "$tree/cmake"
touch "$tree/CMakeLists.txt" "$tree/CMakePresets.json"

# refused MESSAGE ARGUMENT...
refused() {
  local message=$1 status=0
  shift
  "$tree/scripts/package.sh" "$@" >"$tree/out" 2>"$tree/err" || status=$?
  [[ $status == 2 && ! -s $tree/out ]] || fail "package.sh $*: exit code $status, $(cat "$tree/out" "$tree/err")"
  grep -F -- "$message" "$tree/err" || fail "package.sh $*: no '$message' in: $(cat "$tree/err")"
}

# build_has true|false: a build with or without CUDA code.
build_has() {
  local info='{"version": "0.1.0", "torch": "2.11.0", "cuda": {"compiled": '$1'}}'
  printf '#!/bin/sh\ncat <<"END"\n%s\nEND\n' "$info" | install -D -m 755 /dev/stdin "$tree/build/release/metaformer"
}

refused "unknown argument 'deb'" deb
refused "no build in build/release: scripts/run.sh --version makes one"
build_has false
refused "--cuda: the build has no CUDA code; on a machine with nvcc: scripts/setup.sh --cuda" --cuda
build_has true
refused "--cpu: the build has CUDA code; for a build without: scripts/setup.sh --cpu" --cpu
[[ ! -e $tree/.deps && ! -e $tree/build/packages ]] || fail "a refusal left files"
