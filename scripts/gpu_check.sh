#!/usr/bin/env bash
# Checks and measures the CUDA path on a machine with a GPU, in at most eight minutes. Writes one results file after every check,
# so that an interrupted run keeps its results.
#
#   scripts/gpu_check.sh [--output FILE]     in the tree: builds (needs nvcc and the libraries of setup.sh)
#                                            in a folder of scripts/gpu_bundle.sh: runs the programs of the bundle; needs a
#                                            Python with torch 2.11, $PYTHON if that is set
#   scripts/gpu_check.sh --dry-run           without a GPU: runs only the parts that need none
#   --binaries DIR                           a bundle in another folder
#   --seconds N                              in place of 480
#
# The results go to experiments/gpu/DATE.md or to --output. Exit code 1 if a check fails or has no time.
# shellcheck disable=SC2317  # functions that are called by name
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"

binaries='' dry=false budget=480 output=$root/experiments/gpu/$(date -u +%Y-%m-%d).md
[[ ! -x $root/bin/metaformer ]] || binaries=$root
while (($#)); do
  case $1 in
    --binaries) binaries=${2:?--binaries needs a folder}; shift 2 ;;
    --dry-run) dry=true; shift ;;
    --output) output=${2:?--output needs a file}; shift 2 ;;
    --seconds) budget=${2:?--seconds needs a number}; shift 2 ;;
    *) die 2 "unknown argument $1; see the head of scripts/gpu_check.sh" ;;
  esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

use_bundle() {
  binaries=$(cd -- "$binaries" && pwd -P) || die 2 "no folder $binaries"
  python=${PYTHON:-python3}
  program=$binaries/bin/metaformer probes=$binaries/bin/wrapper_probes
  probes_cuda=$binaries/bin/wrapper_probes_cuda suite=$binaries/bin/test_kernels_cuda
  peers=$binaries/scripts/peers
  local torch cuda
  torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))') ||
    die 2 "a Python with torch is needed; set PYTHON"
  cuda=$(find "$torch/.." -path '*nvidia*' -name lib -type d | tr '\n' ':')
  export LD_LIBRARY_PATH="$binaries/lib:$torch/lib:$cuda${LD_LIBRARY_PATH:-}"
  export METAFORMER_DATA=$binaries/data
}

use_tree() {
  program=$build/metaformer probes=$build/tests/wrapper_probes peers=$root/scripts/peers
  probes_cuda=$build/tests/cuda/device/wrapper_probes_cuda suite=$build/tests/cuda/device/test_kernels_cuda
  [[ -f $build/build.ninja ]] || die 2 "build first: scripts/test.sh"
  local targets=(metaformer wrapper_probes)
  $dry || targets+=(test_kernels_cuda wrapper_probes_cuda)
  cmake --build "$build" --target "${targets[@]}" >"$work/build.log" ||
    { tail -n 20 "$work/build.log" >&2; die 1 "the build failed"; }
}

# Removes the folders of this machine from the output.
without_folders() { sed "s#$work#.#g; s#${binaries:-$root}#.#g"; }

# check NAME SECONDS COMMAND...: runs the command for at most that long, and writes the result and the end of its output.
check() {
  local name=$1 seconds=$2 outcome=passed start=$SECONDS
  shift 2
  ((start + seconds <= budget)) || seconds=$((budget - start))
  : >"$work/out"
  if ((seconds < 5)); then
    outcome="NOT RUN (no time left)"
    ((++failures))
  else
    say "$name"
    timeout --kill-after=5 "$seconds" bash -c '"$@"' check "$@" >"$work/out" 2>&1 ||
      { outcome="FAILED (exit code $?)"; ((++failures)); }
  fi
  {
    printf '\n## %s: %s, %d s\n\n```text\n' "$name" "$outcome" $((SECONDS - start))
    tail -n 60 "$work/out" | without_folders
    printf '```\n'
  } >>"$output"
  [[ $outcome == passed ]] || { say "$name: $outcome"; tail -n 20 "$work/out" >&2; }
}

# The emulator and the GPU must print the same words; approximate functions may differ by 1e-5.
compare_probes() {
  "$probes" >"$work/emulated"
  "$probes_cuda" >"$work/device"
  "$python" - "$work/emulated" "$work/device" <<'PYTHON'
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

# Runs each test in its own process, one process per core: the float64 references take most of the time.
run_suite() {
  "$suite" --list-test-names-only | sed 's/[][,]/\\&/g' >"$work/tests" || true  # the exit code is their number
  wc -l <"$work/tests"
  xargs -d '\n' -P "$(nproc)" -I{} "$suite" {} <"$work/tests" >"$work/suite" || { cat "$work/suite"; return 1; }
  grep -c 'All tests passed' "$work/suite"
}

sanitize() {
  local tool=$1
  compute-sanitizer --tool "$tool" --error-exitcode 9 "$suite" "any strides and any alignment of inputs give the same bits"
}

# bench PRECISION HEAD_WIDTH OPTION...
bench() {
  local precision=$1 width=$2
  shift 2
  "$program" bench attention --device cuda --mixer metric --mixer scaled_dot_product --backend composed --backend fused \
    --precision "$precision" --head-width "$width" --heads $((512 / width)) --batch 4 --context 64 128 256 512 1024 2048 4096 "$@"
}

# train_with NAME OPTION...: a short run of shakespeare_gpu_metric_published.
train_with() {
  local name=$1
  shift
  "$program" train --config shakespeare_gpu_metric_published.yaml --offline --out "$work/$name" --set train.log_interval=1 \
    --set train.eval_interval=1000 --set train.schedule.warmup_steps=5 --set train.steps=60 --set train.precision=fp32 \
    --set train.batch_size=16 "$@"
}

# Every kind of layer trains in bf16 with dropout; no losses are compared.
train_in_bf16() {
  local config
  for config in shakespeare_{scaled_dot_product,quadratic,average_pooling,lstm,block_llama}.yaml seq2seq_copy.yaml sorter_metric.yaml \
    xl_shakespeare.yaml reformer_copy.yaml; do
    "$program" train --config "$config" --offline --quiet --device "$1" --out "$work/bf16.$config" --set train.precision=bf16 \
      --set model.dropout=0.1 --set train.steps=5 --set train.eval_interval=5 --set train.checkpoint_interval=5 \
      --set train.schedule.warmup_steps=1 --set train.batch_size=4 || return
    echo "$config trains"
  done
}

# compare_losses A B: compares the losses of two runs at the first 30 steps; later the runs differ, because rounding errors grow.
compare_losses() {
  "$python" - "$work" "$@" <<'PYTHON'
import json
import sys

def losses(name):
    lines = (json.loads(line) for line in open(f"{sys.argv[1]}/{name}/metrics.jsonl"))
    return [line["loss"] for line in lines if line["split"] == "train"]

first, *others = sys.argv[2:]
for other in others:
    pairs = list(zip(losses(first), losses(other)))[:30]
    worst = max(abs(a - b) / a for a, b in pairs)
    print(f"{first} {pairs[-1][0]:.5f}, {other} {pairs[-1][1]:.5f}; of {len(pairs)} steps the worst differ by {worst:.1e}")
    if len(pairs) < 30 or worst > 1e-3:
        sys.exit(1)
PYTHON
}

compare_backends() {
  local backend
  for backend in fused composed reference; do
    train_with "$backend" --device cuda --set "model.mixer={kind: metric, backend: $backend}" --set model.dropout=0
  done
  compare_losses reference composed fused
}

# compare_devices CONFIG OPTION...: the first steps have the same losses on the GPU and on the CPU.
compare_devices() {
  local config=$1 device
  shift
  for device in cpu cuda; do
    "$program" train --config "$config" --offline --quiet --device "$device" --out "$work/$config.$device" --set train.log_interval=1 \
      --set train.steps=32 --set train.eval_interval=32 --set train.checkpoint_interval=32 --set train.precision=fp32 \
      --set model.dropout=0 "$@"
  done
  compare_losses "$config.cpu" "$config.cuda"
}

# Encoders with decoders, recurrent layers, memories, hashing, and blocks and tasks that the GPU recipes do not have.
compare_all_devices() {
  local failed=0
  compare_devices seq2seq_copy.yaml --set model.mixer=metric --set model.encoder.mixer=metric --set model.cross_mixer=metric || failed=1
  compare_devices sorter_metric.yaml || failed=1
  compare_devices shakespeare_lstm.yaml || failed=1
  compare_devices shakespeare_block_llama.yaml || failed=1
  compare_devices xl_shakespeare.yaml || failed=1
  compare_devices reformer_copy.yaml --set train.batch_size=4 || failed=1
  return "$failed"
}

# Steps with and without a graph draw the same dropout, with micro-batches; on the last device of the machine.
compare_graphs() {
  local device graph
  device=cuda:$(($(nvidia-smi -L | wc -l) - 1))
  for graph in false true; do
    train_with "graph_$graph" --device "$device" --set train.cuda_graph="$graph" --set train.accumulate=2
  done
  grep -q 'replays a step as one graph' "$work/graph_true/train.log"
  compare_losses graph_false graph_true
}

# Two processes, each on its own GPU, have the losses of one process. NCCL does not support two processes on one GPU.
compare_processes() {
  local gpus processes
  gpus=$(nvidia-smi -L | wc -l)
  if ((gpus < 2)); then echo "not measured: this machine has $gpus GPU, and NCCL needs two"; return; fi
  for processes in 1 2; do
    train_with "processes_$processes" --processes "$processes" --device cuda --set train.accumulate=2
    "$program" bench step --config shakespeare_gpu_metric_published.yaml --device cuda --offline --rounds 3 --steps 20 \
      --set train.accumulate=2 --processes "$processes"
  done
  compare_losses processes_1 processes_2
}

# Time of a step with one graph, and with the host starting every operator; then PyTorch's time.
bench_steps() {
  local backend precision graph compile
  for precision in bf16 tf32 fp32; do
    for backend in composed fused; do
      for graph in false true; do
        [[ $graph == true || $precision == bf16 ]] || continue
        printf '%s, %s, cuda_graph %s: ' "$backend" "$precision" "$graph"
        "$program" bench step --config shakespeare_gpu_metric_published.yaml --device cuda --offline --rounds 3 --steps 20 \
          --set model.dropout=0 --set "model.mixer={kind: metric, backend: $backend}" --set "train.precision=$precision" \
          --set "train.cuda_graph=$graph" | head -n 1
      done
    done
    printf 'scaled dot product, %s: ' "$precision"
    "$program" bench step --config shakespeare_gpu_scaled_dot_product.yaml --device cuda --offline --rounds 3 --steps 20 \
      --set model.dropout=0 --set "train.precision=$precision" | head -n 1
  done
  for precision in bf16 fp32; do
    for compile in '' --compile; do
      # shellcheck disable=SC2086  # no word when empty
      "$python" "$peers/pytorch_step.py" --layers 6 --heads 6 --width 384 --context 256 --batch 64 --precision $precision \
        --device cuda --rounds 3 --steps 20 $compile || echo "PyTorch $precision $compile: failed"
    done
  done
}

# sample_both RUN DEVICE TOKENS: the text with graphs equals the text with the host starting every operation, until rounding
# changes a token. Prints the speed of both.
sample_both() {
  local way
  for way in '' --no-graph; do
    # shellcheck disable=SC2086  # no word when empty
    "$program" sample --run "$work/$1" --device "$2" --prompt ROMEO: --tokens "$3" --json $way >"$work/sample$way"
  done
  "$python" - "$work/sample" "$work/sample--no-graph" <<'PYTHON'
import json
import os
import sys

recorded, started = (json.load(open(name)) for name in sys.argv[1:])
same = len(os.path.commonprefix([recorded["text"], started["text"]]))
print(f"the first {same} of {len(started['text'])} characters agree; tokens per second: "
      f"{recorded['tokens_per_second']:.0f} with graphs, {started['tokens_per_second']:.0f} without")
sys.exit(same < min(200, len(started["text"])))
PYTHON
}

# Generation with graphs uses no cache.
compare_sampling() {
  sample_both graph_false cuda 1000 && grep -q '"cache_bytes": *0[,}]' "$work/sample"
}

# The shipped recipe, until the time ends: losses and seconds.
time_to_loss() {
  "$program" train --config "shakespeare_gpu_$1.yaml" --device cuda --offline --out "$work/time_$1" --set train.eval_interval=250 ||
    true  # stopped at the end of its time
  grep -h '"validation' "$work/time_$1/metrics.jsonl"
}

dry_run() {
  "$probes" >"$work/emulated"
  "$program" info >/dev/null
  train_with dry --quiet --device cpu --set train.steps=2 --set train.batch_size=2 --set model.width=48 --set model.context=32 --json >/dev/null
  sample_both dry cpu 20 >/dev/null
  say "dry run: the emulated wrappers print $(wc -l <"$work/emulated") results, and a run of $("$program" config check \
    --config shakespeare_gpu_metric_published.yaml | head -n 1) ends; the other checks need a GPU"
}

if [[ -n $binaries ]]; then use_bundle; else use_tree; fi
output=$(realpath -m -- "$output")
cd "$work"  # training writes the link runs/latest
if $dry; then
  dry_run
  exit
fi
export program probes probes_cuda suite peers python work
export -f train_in_bf16 compare_probes run_suite sanitize bench bench_steps train_with compare_losses compare_backends compare_graphs compare_processes \
  sample_both compare_sampling time_to_loss compare_devices compare_all_devices
nvidia-smi >/dev/null 2>&1 || die 2 "no GPU here; --dry-run needs none"
mkdir -p "$(dirname "$output")"
SECONDS=0
{
  printf '# GPU check, %s\n\n```text\n' "$(date -u '+%Y-%m-%d %H:%M UTC')"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
  "$program" info | without_folders
  printf '```\n'
} >"$output"
check "wrappers on the GPU agree with the emulated ones" 20 compare_probes
check "the kernel suite on the GPU" 100 run_suite
check "the backends' losses agree" 60 compare_backends
check "losses on the GPU equal those on the CPU" 75 compare_all_devices
check "other models train in bf16 with dropout" 45 train_in_bf16 cuda
check "a replayed step equals an eager step, with dropout and micro-batches" 45 compare_graphs
check "two processes have the losses of one process" 60 compare_processes
check "training steps of the program and of PyTorch" 130 bench_steps
for precision in bf16 tf32 fp32; do
  check "attention without projections, $precision, head width 64" 12 bench "$precision" 64 --core --backend library
done
for width in 32 128; do
  check "attention without projections, bf16, head width $width" 12 bench bf16 "$width" --core --backend library
done
check "attention with projections, bf16, head width 64" 10 bench bf16 64
if command -v compute-sanitizer >/dev/null; then
  check "compute-sanitizer memcheck" 40 sanitize memcheck
  check "compute-sanitizer racecheck" 40 sanitize racecheck
else
  printf '\n## compute-sanitizer: not on this machine\n' >>"$output"
fi
check "text with graphs equals the text without them" 20 compare_sampling
check "time to loss, metric" 60 time_to_loss metric
check "time to loss, scaled dot product" 60 time_to_loss scaled_dot_product
say "$failures checks failed or had no time; results in $output"
exit $((failures > 0))
