#!/usr/bin/env bash
# The scripts in a copy of the tree with a stand-in for the program: they find it with CDPATH set, through links and from any
# folder, and an up-to-date program starts while another build holds the lock. The set-up chooses CUDA because of a GPU or an option,
# not because of nvcc; the build prints how long it may take.
set -euo pipefail
unset CDPATH
scripts=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../../scripts
tree=$(mktemp -d "${TMPDIR:-/tmp}/metaformer tree XXXXXX")
holder=''
trap '[[ -z $holder ]] || kill "$holder"; rm -rf "$tree"' EXIT
fail() {
  echo "$*" >&2
  exit 1
}

# stand_in PROGRAM LINE
stand_in() { printf '#!/bin/sh\n%s\n' "$2" | install -D -m 755 /dev/stdin "$tree/$1"; }

cp -r "$scripts" "$tree/scripts"
mkdir -p "$tree/src" "$tree/cmake" "$tree/build/release" "$tree/.deps" "$tree/elsewhere/scripts" "$tree/elsewhere/lib"
touch "$tree/CMakeLists.txt" "$tree/CMakePresets.json" "$tree/src/a.cpp" "$tree/build/release/build.ninja"
# shellcheck disable=SC2016  # expanded by the inner shell
bash -c 'source "$1/scripts/lib/environment.sh"; printf "variant=cpu\ninputs=%s\n" "$(setup_inputs)" >"$setup_stamp"' - "$tree"
touch "$tree/build/release/.configured"
stand_in build/release/metaformer 'echo "ran $*"'
touch -d '1 hour' "$tree/build/release/metaformer"

(
  exec {lock}>"$tree/build/release/.lock"
  flock "$lock"
  exec sleep 600
) &
holder=$!
until ! flock -n "$tree/build/release/.lock" true; do sleep 0.1; done

cd "$tree"
[[ $(timeout 60 scripts/run.sh one two) == "ran one two" ]] || fail "does not start while another build runs"
[[ $(CDPATH=$tree/elsewhere timeout 60 scripts/run.sh x) == "ran x" ]] || fail "does not start with CDPATH set"
ln -s "$tree/scripts/run.sh" "$tree/elsewhere/metaformer"
ln -s metaformer "$tree/elsewhere/again"
cd elsewhere
[[ $(timeout 60 ./again y) == "ran y" ]] || fail "does not start through links"

touch -d '2 hours' "$tree/src/a.cpp"
if timeout 5 "$tree/scripts/run.sh" z >"$tree/out" 2>"$tree/err"; then fail "starts a program that is older than its source"; fi
grep -q "another build is running; waiting for it" "$tree/err" || fail "does not say that it waits: $(cat "$tree/err")"
[[ ! -s $tree/out ]] || fail "has started a program that is older than its source"

kill "$holder" && holder=''
stand_in stand-ins/ninja 'echo "[1/9] something"'
stand_in stand-ins/dpkg-query 'printf installed'
for name in nvcc apt-get; do stand_in "stand-ins/$name" 'exit 0'; done
# shellcheck disable=SC2016  # expanded by the stand-in
stand_in stand-ins/nvidia-smi '[ "$METAFORMER_TEST_GPU" != yes ] || echo "GPU 0: a stand-in"'
mkdir -p "$tree/.deps/venv/lib/python3.11/site-packages/torch/lib"
touch "$tree/.deps/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
stand_in .deps/venv/bin/python 'exit 0'
install -D "$scripts/requirements/docs.txt" "$tree/.deps/docs/requirements.txt"
export PATH="$tree/stand-ins:$PATH"

timeout 60 "$tree/scripts/run.sh" z >/dev/null 2>"$tree/err" || fail "does not build: $(cat "$tree/err")"
grep -Eq 'building; the first time this takes [0-9]+ to [0-9]+ minutes with [0-9]+ compilers at once' "$tree/err" ||
  fail "does not say how long a build takes: $(cat "$tree/err")"

stand_in build/release/metaformer 'sleep 1; echo "survived $*"'
"$tree/scripts/run.sh" it >"$tree/out" 2>"$tree/err" &
started=$!
until grep -Eq '^SigIgn:.*[2367abef]..$' "/proc/$started/status"; do sleep 0.01; done  # its first line has been read
while kill -USR1 $started 2>/dev/null; do sleep 0.05; done
wait $started || fail "a request to save ends it before there is a training"
[[ $(<"$tree/out") == "survived it" ]] || fail "printed $(<"$tree/out")"

# chosen EXPECTED GPU OPTION...: checks the variant that a set-up chooses.
chosen() {
  local expected=$1 gpu=$2
  shift 2
  METAFORMER_TEST_GPU=$gpu "$tree/scripts/setup.sh" "$@" 2>"$tree/err" || fail "set-up $*: $(cat "$tree/err")"
  grep -qx "variant=$expected" "$tree/.deps/setup.stamp" || fail "GPU: $gpu, options: $*: $(cat "$tree/.deps/setup.stamp")"
}
rm "$tree/.deps/setup.stamp"
if [[ -e /dev/nvidia0 ]]; then echo "skipped: the choice without a GPU, because there is one"; else chosen cpu no; fi
rm -f "$tree/.deps/setup.stamp"
chosen cuda yes
chosen cuda no  # as before
chosen cpu yes --cpu
chosen cpu yes
chosen cuda no --cuda
