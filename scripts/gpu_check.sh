#!/usr/bin/env bash
# Checks and measures the CUDA kernels on a machine with a GPU, in about eight minutes, and writes one results file.
#
#   scripts/gpu_check.sh [--output FILE]                   builds from the tree (needs nvcc and the libraries of setup.sh)
#   scripts/gpu_check.sh --binaries DIR [--output FILE]    runs what scripts/gpu_bundle.sh packed; needs a Python with torch 2.11
#   scripts/gpu_check.sh --dry-run                         without a GPU: builds, and runs what needs none
#
# The results go to experiments/gpu/DATE.md unless --output says otherwise. Exit code 1 when a check fails.
# shellcheck disable=SC2317  # functions that are called by name
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"

binaries='' dry=false output=$root/experiments/gpu/$(date -u +%Y-%m-%d).md
while (($#)); do
  case $1 in
    --binaries) binaries=${2:?--binaries needs a folder}; shift 2 ;;
    --output) output=${2:?--output needs a file}; shift 2 ;;
    --dry-run) dry=true; shift ;;
    *) die 2 "unknown argument $1; see the head of scripts/gpu_check.sh" ;;
  esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

prepare() {
  if [[ -n $binaries ]]; then
    program=$binaries/metaformer probes=$binaries/wrapper_probes probes_cuda=$binaries/wrapper_probes_cuda
    suite=$binaries/test_kernels_cuda
    local torch
    torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))') || die 2 "a Python with torch is needed"
    local cuda
    cuda=$(find "$torch/.." -path '*nvidia*' -name lib -type d | tr '\n' ':')
    export LD_LIBRARY_PATH="$binaries/lib:$torch/lib:$cuda${LD_LIBRARY_PATH:-}"
    return
  fi
  local build=$root/build/release
  program=$build/metaformer probes=$build/tests/wrapper_probes suite=$build/tests/cuda/device/test_kernels_cuda
  probes_cuda=$build/tests/cuda/device/wrapper_probes_cuda
  [[ -f $build/build.ninja ]] || die 2 "build first: scripts/test.sh"
  cmake --build "$build" --target metaformer wrapper_probes test_kernels_cuda wrapper_probes_cuda >"$work/build.log" ||
    { tail -n 20 "$work/build.log" >&2; die 1 "the build failed"; }
}

# check NAME SECONDS COMMAND...: runs it, notes the outcome and the end of what it printed.
check() {
  local name=$1 seconds=$2 outcome=passed start=$SECONDS
  shift 2
  say "$name"
  timeout "$seconds" bash -c '"$@"' check "$@" >"$work/out" 2>&1 || { outcome="FAILED (exit code $?)"; ((++failures)); }
  {
    printf '\n## %s: %s, %d s\n\n```text\n' "$name" "$outcome" $((SECONDS - start))
    tail -n 60 "$work/out"
    printf '```\n'
  } >>"$output"
  [[ $outcome == passed ]] || tail -n 20 "$work/out" >&2
}

# The same words from the emulator and from the GPU; functions that only approximate within 1e-5.
compare_probes() {
  "$probes" >"$work/emulated"
  "$probes_cuda" >"$work/device"
  python3 - "$work/emulated" "$work/device" <<'PYTHON'
import sys

emulated, device = ([line.split() for line in open(name)] for name in sys.argv[1:])
wrong = [] if len(emulated) == len(device) else ["different numbers of lines"]
for ours, theirs in zip(emulated, device):
    near = ours[0] == "functions" and abs(float(ours[2]) - float(theirs[2])) <= 1e-5 * max(1, abs(float(ours[2])))
    if ours != theirs and not near:
        wrong.append(f"emulated {' '.join(ours)}, on the GPU {theirs[2]}")
print("\n".join(wrong[:20]) or f"{len(emulated)} results agree")
sys.exit(bool(wrong))
PYTHON
}

sanitize() {
  local tool=$1
  compute-sanitizer --tool "$tool" --error-exitcode 9 "$suite" "any strides and any alignment of inputs give the same bits"
}

bench() {
  local precision=$1 width=$2
  "$program" bench attention --device cuda --mixer metric --mixer scaled_dot_product --backend composed --backend fused \
    --precision "$precision" --head-width "$width" --heads $((512 / width)) --batch 4 --context 64 128 256 512 1024 2048 4096
}

train_with() {
  "$program" train --config shakespeare_gpu_metric.yaml --device cuda --out "$work/$1" --set train.steps=200 \
    --set model.dropout=0 --set "model.mixer={kind: metric, backend: $1}"
}

# Time of a step, with the host starting every operator and with one graph.
bench_steps() {
  local backend precision graph
  for backend in composed fused; do
    for precision in fp32 tf32 bf16; do
      for graph in false true; do
        printf '%s, %s, cuda_graph %s: ' "$backend" "$precision" "$graph"
        "$program" bench step --config shakespeare_gpu_metric.yaml --device cuda --rounds 3 --steps 20 --set model.dropout=0 \
          --set "model.mixer={kind: metric, backend: $backend}" --set "train.precision=$precision" --set "train.cuda_graph=$graph"
      done
    done
  done
}

# The same seed and data: losses differ by rounding alone.
compare_losses() {
  python3 - "$work" <<'PYTHON'
import json
import sys

losses = {name: json.load(open(f"{sys.argv[1]}/{name}/summary.json"))["val_loss"] for name in ("fused", "composed", "reference")}
print(losses)
sys.exit(max(losses.values()) - min(losses.values()) > 0.05)
PYTHON
}

prepare
export program probes probes_cuda suite work
export -f compare_probes sanitize bench bench_steps train_with compare_losses
mkdir -p "$(dirname "$output")"
if $dry; then
  "$probes" >"$work/emulated"
  say "dry run: built; the emulated wrappers print $(wc -l <"$work/emulated") results; the rest needs a GPU"
  exit 0
fi
nvidia-smi >/dev/null 2>&1 || die 2 "no GPU here; --dry-run does what needs none"
{
  printf '# GPU check, %s\n\n```text\n' "$(date -u '+%Y-%m-%d %H:%M UTC')"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
  "$program" info
  printf '```\n'
} >"$output"
check "wrappers on the GPU do what the emulated ones do" 60 compare_probes
check "the kernel suite on the GPU" 180 "$suite"
if command -v compute-sanitizer >/dev/null; then
  check "compute-sanitizer memcheck" 90 sanitize memcheck
  check "compute-sanitizer racecheck" 90 sanitize racecheck
else
  printf '\n## compute-sanitizer: not on this machine\n' >>"$output"
fi
for precision in bf16 fp32; do
  for width in 32 64 128; do
    check "bench attention, $precision, head width $width" 60 bench "$precision" "$width"
  done
done
check "training steps, eager and as a graph" 120 bench_steps
for backend in fused composed reference; do
  check "200 steps of shakespeare_gpu_metric, $backend" 90 train_with "$backend"
done
check "the backends' losses agree" 10 compare_losses
say "$failures checks failed; results in $output"
exit $((failures > 0))
