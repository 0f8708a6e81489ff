#!/usr/bin/env bash
# Checks and measures the CUDA path on a machine with a GPU, in at most eight minutes. Checks are in order of importance, and
# results are written after each of them, so that an interrupted run keeps the most important ones.
#
#   scripts/gpu_check.sh [--output FILE]     in the tree: builds (needs nvcc and the libraries of setup.sh)
#                                            in a folder of scripts/gpu_bundle.sh: runs the programs of the bundle; needs a
#                                            Python with torch 2.11, $PYTHON if that is set
#   scripts/gpu_check.sh --dry-run           without a GPU: every check on the CPU with tiny sizes, as far as it can run there
#   --binaries DIR                           a bundle in another folder
#   --seconds N                              in place of 480
#
# The output of each check goes to experiments/gpu/DATE.md or to --output, and the measurements, with the rule and the
# decision for each, to a JSON file beside it. Exit code 1 if a check fails or has no time.
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
[[ $budget =~ ^[1-9][0-9]*$ ]] || die 2 "--seconds $budget: expected a whole number"

work=$(mktemp -d)
background=''
stop() {
  [[ -z $background ]] || kill -- "-$background" 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT
failures=0

use_bundle() {
  binaries=$(cd -- "$binaries" && pwd -P) || die 2 "no folder $binaries"
  python=${PYTHON:-python3}
  program=$binaries/bin/metaformer probes=$binaries/bin/wrapper_probes
  probes_cuda=$binaries/bin/wrapper_probes_cuda suite=$binaries/bin/test_kernels_cuda
  scripts=$binaries/scripts
  local torch cuda
  torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))') ||
    die 2 "a Python with torch is needed; set PYTHON"
  cuda=$(find "$torch/.." -path '*nvidia*' -name lib -type d | tr '\n' ':')
  export LD_LIBRARY_PATH="$binaries/lib:$torch/lib:$cuda${LD_LIBRARY_PATH:-}"
  export METAFORMER_DATA=$binaries/data
}

use_tree() {
  program=$build/metaformer probes=$build/tests/wrapper_probes scripts=$root/scripts
  probes_cuda=$build/tests/cuda/device/wrapper_probes_cuda suite=$build/tests/cuda/device/test_kernels_cuda
  [[ -f $build/build.ninja ]] || die 2 "build first: scripts/test.sh"
  local targets=(metaformer wrapper_probes)
  $dry || targets+=(test_kernels_cuda wrapper_probes_cuda)
  cmake --build "$build" --target "${targets[@]}" >"$work/build.log" ||
    { tail -n 20 "$work/build.log" >&2; die 1 "the build failed"; }
}

# The sizes of all measurements. Lists of words, because a shell's arrays are not exported.
use_gpu() {
  patience=1 device=cuda compared=30 tokens=1000 precisions='tf32 fp32' choices='bf16 tf32'
  tiny='' quick='' backends='--backend composed --backend fused'
  long_shape='--batch 4 --heads 8 --head-width 64 --context 256 1024 4096'
  recipe_shape='--batch 64 --heads 6 --head-width 64 --context 256'
  widths='32 64 128' contexts='64 128 256 512 1024 2048 4096' model_width=512
  steps='--rounds 3 --steps 20' profiled='--set train.steps=35'
  peer_sizes='--layers 6 --heads 6 --width 384 --context 256 --batch 64 --rounds 3 --steps 20 --device cuda'
  graph=--graph compile=--compile small='' to_loss='--set train.eval_interval=250'
  translator='--set model.layers=6 --set model.heads=6 --set model.width=384 --set model.context=128'
}

# The same for --dry-run: the smallest sizes on the CPU, where nothing is fused or recorded, and stand-ins for programs that
# need a GPU. torch.compile is left out, because it takes minutes.
use_cpu() {
  device=cpu compared=2 tokens=20 precisions=fp32 choices=bf16 budget=100000 patience=20
  tiny='--set model.layers=1 --set model.heads=2 --set model.width=16 --set model.context=16 --set train.batch_size=2'
  quick='--set train.evaluation.kind=limited --set train.evaluation.tokens=64 --set train.steps=4 --set train.schedule.warmup_steps=1'
  backends='--backend composed --backend reference'
  long_shape='--batch 1 --heads 2 --head-width 8 --context 8 16' recipe_shape='--batch 2 --heads 2 --head-width 8 --context 8'
  widths=8 contexts='8 16' model_width=16
  steps='--rounds 1 --steps 1 --warmup 1' profiled='--set train.steps=12'
  peer_sizes='--layers 1 --heads 2 --width 16 --context 16 --batch 2 --rounds 1 --steps 1 --warmup 1'
  graph='' compile='' small=--small to_loss='--set train.eval_interval=2'
  translator='--set model.layers=1 --set model.heads=2 --set model.width=16'
  probes_cuda=$probes suite=$work/bin/suite
  export OMP_NUM_THREADS=1
  mkdir "$work/bin"
  printf '#!/bin/sh\necho "GPU 0: the CPU of a dry run"\n' >"$work/bin/nvidia-smi"
  printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$work/bin/compute-sanitizer"
  cat >"$suite" <<'SUITE'
#!/bin/sh
case $1 in
  --list-test-names-only) echo 'a test, [with] its name'; exit 1 ;;
  'a test\, \[with\] its name') echo 'All tests passed' ;;
  *,* | *'['*) echo "no test matches $1"; exit 2 ;;
  *) echo "All tests passed: $1" ;;
esac
SUITE
  chmod +x "$work"/bin/*
  PATH=$work/bin:$PATH
}

# Removes the folders of this machine from the output.
without_folders() { sed "s#$work#.#g; s#${binaries:-$root}#.#g"; }

# check NAME SECONDS COMMAND...: runs the command for at most that long, and writes the result and the end of its output.
check() {
  local name=$1 seconds=$(($2 * patience)) outcome=passed start=$SECONDS
  shift 2
  ((start + seconds <= budget - 5)) || seconds=$((budget - 5 - start))  # a command has five more seconds to end
  : >"$work/out"
  if ((seconds < 5)); then
    outcome="NOT RUN (no time left)"
    ((++failures))
  else
    say "$name"
    timeout --kill-after=5 "$seconds" bash -euo pipefail -c '"$@"' check "$@" >"$work/out" 2>&1 ||
      { outcome="FAILED (exit code $?)"; ((++failures)); }
  fi
  {
    printf '\n## %s: %s, %d s\n\n```text\n' "$name" "$outcome" $((SECONDS - start))
    tail -n 100 "$work/out" | without_folders
    printf '```\n'
  } >>"$output"
  "$python" "$scripts/gpu_results.py" check "$notes" "$name" "$outcome" $((SECONDS - start))
  "$python" "$scripts/gpu_results.py" write "$notes" "${output%.md}.json"
  [[ $outcome == passed ]] || { say "$name: $outcome"; tail -n 20 "$work/out" >&2; }
}

# note LABEL COMMAND...: runs the command, and notes the measurements that it prints.
note() {
  local label=$1 status=0
  shift
  "$@" >"$work/printed" 2>&1 || status=$?
  "$python" "$scripts/gpu_results.py" note "$notes" "$label" <"$work/printed" || status=1
  ((status == 0)) || { echo "$label: exit code $status"; tail -n 5 "$work/printed"; }
  return "$status"
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

# sanitize TOOL TEST
sanitize() { compute-sanitizer --tool "$1" --error-exitcode 9 "$suite" "$2"; }

# Compiles PyTorch's steps one after the other, so that their own check only measures.
warm_peers() {
  local dropout
  for dropout in 0 0.2; do
    # shellcheck disable=SC2086  # lists of words
    "$python" "$scripts/peers/pytorch_step.py" $peer_sizes --rounds 1 --steps 1 --warmup 1 --precision bf16 $compile \
      --dropout "$dropout"
  done
  touch "$work/peers_are_warm"
}

# Waits at most that many seconds; missing steps are compiled later, in PyTorch's own checks.
await_peers() {
  local end=$((SECONDS + $1))
  while [[ ! -e $work/peers_are_warm ]] && ((SECONDS < end)); do sleep 0.2; done
  [[ -e $work/peers_are_warm ]] || echo "not compiled yet"
  cat "$work/warm"
}

probe_rates() {
  # shellcheck disable=SC2086
  note probe "$python" "$scripts/peers/gpu_probes.py" --device "$device" $small
}

# Milliseconds of a step by kind of work. Metric attention in its shipped form has the backend that auto takes: the library's
# attention, and with dropout the fused kernels. The published form has both other backends.
profile_steps() {
  local name config dropout failed=0
  for dropout in 0 0.2; do
    for name in scaled_dot_product metric metric_fused metric_composed; do
      config=$name
      [[ $name != metric_* ]] || config=metric_published
      # shellcheck disable=SC2046,SC2086
      note "profile/$name/$dropout" "$program" train --config "shakespeare_gpu_$config.yaml" --offline --device "$device" \
        --out "$work/profile_$name.$dropout" --profile $tiny $quick $profiled --set "model.dropout=$dropout" \
        --set train.schedule.warmup_steps=1 --set train.eval_interval=1000 $(backend_of "$name") || failed=1
    done
  done
  return "$failed"
}

# On the CPU nothing is fused.
backend_of() {
  local backend=${1#metric_}
  [[ $backend != "$1" ]] || return 0
  [[ $device == cuda || $backend != fused ]] || backend=reference
  echo "--set model.mixer.backend=$backend"
}

# attention LABEL OPTION...: the core of metric attention and of scaled dot product.
attention() {
  local label=$1
  shift
  # shellcheck disable=SC2086
  note "$label" "$program" bench attention --device "$device" --core --mixer metric --mixer scaled_dot_product $backends \
    "$@" --json
}

# Both passes together and each alone, for long contexts and for the recipe, in the shipped form with values of their own.
attention_by_pass() {
  local direction shape failed=0
  for direction in forward both backward; do
    for shape in "$long_shape" "$recipe_shape"; do
      # shellcheck disable=SC2086
      attention core --backend library --backend fused_short --own-values --precision bf16 --direction "$direction" $shape || failed=1
    done
  done
  return "$failed"
}

# Layers between matrix products, the loss, norm, clipping and update of the weights, and linear layers on copies of the weights,
# by kernels and by the operators that they replace, in turn.
step_kernels() {
  # shellcheck disable=SC2086
  note kernel "$program" bench kernels --device "$device" $recipe_shape --precision bf16 --json
}

attention_for_choices() {
  local precision width failed=0
  for precision in $choices; do
    for width in $widths; do
      # shellcheck disable=SC2086
      attention choice --backend library --backend fused_short --precision "$precision" --batch 4 --heads $((model_width / width)) --head-width "$width" \
        --context $contexts || failed=1
    done
  done
  return "$failed"
}

# step MIXER PRECISION DROPOUT CUDA_GRAPH
step() {
  local replayed=eager
  [[ $4 == false ]] || replayed=graph
  # shellcheck disable=SC2086
  note "step/$1/$2/dropout $3/$replayed" "$program" bench step --config "shakespeare_gpu_$1.yaml" --device "$device" \
    --offline $steps $tiny --set "model.dropout=$3" --set "train.precision=$2" --set "train.cuda_graph=$4" --json
}

bench_steps() {
  local replayed dropout mixer failed=0
  for replayed in true false; do
    for dropout in 0 0.2; do
      for mixer in scaled_dot_product metric quadratic; do step "$mixer" bf16 "$dropout" "$replayed" || failed=1; done
    done
  done
  return "$failed"
}

bench_steps_in_fp32() {
  local precision mixer failed=0
  for precision in $precisions; do
    for mixer in scaled_dot_product metric; do step "$mixer" "$precision" 0 true || failed=1; done
  done
  return "$failed"
}

# bench_peers ROW...: PyTorch's step with these options; each row is noted when it is done.
bench_peers() {
  local rows=() row text status=0
  for row in "$@"; do rows+=("--row=$row"); done
  text=$("$program" data fetch tinyshakespeare)
  # shellcheck disable=SC2086
  "$python" "$scripts/peers/pytorch_step.py" $peer_sizes --text "$text" "${rows[@]}" 2>"$work/said" |
    while IFS= read -r row; do "$python" "$scripts/gpu_results.py" note "$notes" peer <<<"$row"; done || status=1
  ((status == 0)) || cat "$work/said"
  return "$status"
}

# train_with NAME OPTION...: a short run of shakespeare_gpu_metric_published.
train_with() {
  local name=$1
  shift
  # shellcheck disable=SC2086
  "$program" train --config shakespeare_gpu_metric_published.yaml --offline --out "$work/$name" --set train.log_interval=1 \
    --set train.eval_interval=1000 --set train.schedule.warmup_steps=5 --set train.steps=60 --set train.precision=fp32 \
    --set train.batch_size=16 $tiny $quick "$@"
}

# Every kind of layer trains in bf16 with dropout; no losses are compared.
train_in_bf16() {
  local config
  for config in shakespeare_{scaled_dot_product,quadratic,average_pooling,lstm,block_llama}.yaml seq2seq_copy.yaml \
    sorter_metric.yaml xl_shakespeare.yaml reformer_copy.yaml; do
    # shellcheck disable=SC2086
    "$program" train --config "$config" --offline --quiet --device "$device" --out "$work/bf16.$config" $quick \
      --set train.precision=bf16 --set model.dropout=0.1 --set train.steps=5 --set train.eval_interval=5 \
      --set train.checkpoint_interval=5 --set train.schedule.warmup_steps=1 --set train.batch_size=4
    echo "$config trains"
  done
}

# compare_losses A B...: compares the losses of runs at the first 30 steps; later the runs differ, because rounding errors
# grow. They may differ by a thousandth, or by $within.
compare_losses() {
  "$python" - "$work" "$compared" "${within:-1e-3}" "$@" <<'PYTHON'
import json
import sys

def losses(name):
    lines = (json.loads(line) for line in open(f"{sys.argv[1]}/{name}/metrics.jsonl"))
    return [line["loss"] for line in lines if line["split"] == "train"]

compared, within = int(sys.argv[2]), float(sys.argv[3])
first, *others = sys.argv[4:]
for other in others:
    pairs = list(zip(losses(first), losses(other)))[:compared]
    worst = max(abs(a - b) / a for a, b in pairs)
    print(f"{first} {pairs[-1][0]:.5f}, {other} {pairs[-1][1]:.5f}; of {len(pairs)} steps the worst differ by {worst:.1e}")
    if len(pairs) < compared or worst > within:
        sys.exit(1)
PYTHON
}

# The shipped form in bf16, by the library's attention with kernels around it.
compare_shipped_form() {
  local backend
  for backend in reference composed auto; do
    # shellcheck disable=SC2086
    "$program" train --config shakespeare_gpu_metric.yaml --offline --device "$device" --out "$work/shipped_$backend" \
      --set train.log_interval=1 --set train.eval_interval=1000 --set train.schedule.warmup_steps=5 --set train.steps=60 \
      --set train.batch_size=16 $tiny $quick --set model.dropout=0 --set model.mixer.backend="$backend"
  done
  within=1e-2 compare_losses shipped_reference shipped_composed shipped_auto
}

compare_backends() {
  local backend names=()
  for backend in reference composed fused; do
    [[ $device == cuda || $backend != fused ]] || continue
    train_with "$backend" --device "$device" --set "model.mixer={kind: metric, backend: $backend}" --set model.dropout=0
    names+=("$backend")
  done
  compare_losses "${names[@]}"
}

# compare_devices CONFIG OPTION...: the first steps have the same losses on the GPU and on the CPU.
compare_devices() {
  local config=$1 on length=$((compared + 2))
  shift
  for on in cpu "$device"; do
    # shellcheck disable=SC2086
    "$program" train --config "$config" --offline --quiet --device "$on" --out "$work/$config.$on" $quick \
      --set train.log_interval=1 --set train.steps=$length --set train.eval_interval=$length \
      --set train.checkpoint_interval=$length --set train.precision=fp32 --set model.dropout=0 "$@"
    [[ $device == cuda ]] || break  # in a dry run they are one run
  done
  compare_losses "$config.cpu" "$config.$device"
}

# Encoders with decoders, recurrent layers, memories, hashing, and blocks and tasks that the GPU recipes do not have.
compare_all_devices() {
  local failed=0
  compare_devices seq2seq_copy.yaml --set model.mixer=metric --set model.encoder.mixer=metric \
    --set model.cross_mixer=metric || failed=1
  compare_devices sorter_metric.yaml || failed=1
  compare_devices shakespeare_lstm.yaml || failed=1
  compare_devices shakespeare_block_llama.yaml || failed=1
  compare_devices xl_shakespeare.yaml || failed=1
  compare_devices reformer_copy.yaml --set train.batch_size=4 || failed=1
  return "$failed"
}

# Steps with and without a graph draw the same dropout, with micro-batches; on the last device of the machine.
compare_graphs() {
  local on=$device replayed
  [[ $device == cpu ]] || on=cuda:$(($(nvidia-smi -L | wc -l) - 1))
  for replayed in false true; do
    train_with "graph_$replayed" --device "$on" --set train.cuda_graph="$replayed" --set train.accumulate=2
  done
  [[ $device == cpu ]] || grep -q 'replays a step as one graph' "$work/graph_true/train.log"
  compare_losses graph_false graph_true
}

# Two processes, each on its own GPU, have the losses of one process. NCCL does not support two processes on one GPU.
compare_processes() {
  local gpus processes
  gpus=$(nvidia-smi -L | wc -l)
  if ((gpus < 2)); then echo "not measured: this machine has $gpus GPU, and NCCL needs two"; return; fi
  for processes in 1 2; do
    train_with "processes_$processes" --processes "$processes" --device cuda --set train.accumulate=2
    note "processes/$processes" "$program" bench step --config shakespeare_gpu_metric_published.yaml --device cuda --offline \
      --rounds 3 --steps 20 --set train.accumulate=2 --processes "$processes" --json
  done
  grep -q 'replays a step as one graph' "$work/processes_2/train.log"
  compare_losses processes_1 processes_2
}

# The text with graphs equals the text with the host starting every operation, until rounding changes a token. Prints the
# speed of both, for one text and for 64 texts.
compare_sampling() {
  local way samples
  for samples in 1 64; do
    for way in '' --no-graph; do
      # shellcheck disable=SC2086  # no word when empty
      "$program" sample --run "$work/graph_false" --device "$device" --prompt ROMEO: --tokens "$tokens" --num-samples "$samples" \
        --json $way >"$work/sample$way" 2>"$work/sample.log"
      if grep 'cannot be recorded' "$work/sample.log"; then return 1; fi
    done
    "$python" - "$samples" "$work/sample" "$work/sample--no-graph" <<'PYTHON'
import json
import os
import sys

recorded, started = (json.load(open(name)) for name in sys.argv[2:])
same = len(os.path.commonprefix([recorded["text"], started["text"]]))
print(f"{sys.argv[1]} texts: the first {same} of {len(started['text'])} characters agree; tokens per second: "
      f"{recorded['tokens_per_second']:.0f} with graphs, {started['tokens_per_second']:.0f} without")
sys.exit(same < min(200, len(started["text"])))
PYTHON
  done
}

# The translations of a beam search with graphs have the scores of those with the host starting every operation, until
# rounding changes a hypothesis. The length penalty lets every search reach the greatest length. Prints the speed of both.
compare_beams() {
  local way
  # shellcheck disable=SC2086
  "$program" train --config seq2seq_copy.yaml --offline --quiet --device "$device" --out "$work/beams" --overfit-batch $translator \
    --set train.precision=fp32 --set train.steps=30 --set train.batch_size=8 --set train.schedule.warmup_steps=1 \
    --set train.eval_interval=30 --set train.checkpoint_interval=30
  "$python" -c 'for i in range(64): print(*((i * j * j + j) % 10 for j in range(8 + i % 33)))' >"$work/sources"
  for way in '' --no-graph; do
    # shellcheck disable=SC2086  # no word when empty
    "$program" predict --run "$work/beams" --device "$device" --beam 4 --alpha 10 --json $way "$work/sources" \
      >"$work/targets$way" 2>"$work/beam.log"
    if grep 'cannot be recorded' "$work/beam.log"; then return 1; fi
    echo "${way:-with graphs}: $(grep -o '[^ ]* tokens/s' "$work/beam.log")"
  done
  "$python" - "$work/targets" "$work/targets--no-graph" <<'PYTHON'
import json
import sys

recorded, started = ([json.loads(line)["log_probability"] for line in open(name)] for name in sys.argv[1:])
same = sum(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(recorded, started, strict=True))
print(f"{same} of {len(started)} translations are equally likely")
sys.exit(10 * same < 9 * len(started))
PYTHON
}

# The shipped recipe of a mixer for that many seconds: losses by step.
time_to_loss() {
  # shellcheck disable=SC2086
  timeout --foreground "$2" "$program" train --config "shakespeare_gpu_$1.yaml" --device "$device" --offline --out "$work/time_$1" $tiny \
    $quick $to_loss || true  # stopped at the end of its time
  note "time_to_loss/$1" grep -h '"validation"' "$work/time_$1/metrics.jsonl"
}

if [[ -n $binaries ]]; then use_bundle; else use_tree; fi
use_gpu
if $dry; then
  output=$work/dry.md
  use_cpu
else
  output=$(realpath -m -- "$output")
  nvidia-smi >/dev/null 2>&1 || die 2 "no GPU here; --dry-run needs none"
fi
notes=$work/notes.jsonl
cd "$work"  # training writes the link runs/latest
export program probes probes_cuda suite scripts python work notes
export device compared tokens precisions choices tiny quick backends long_shape recipe_shape widths contexts model_width steps \
  profiled peer_sizes graph compile small to_loss translator TORCHINDUCTOR_CACHE_DIR="$work/inductor"
export -f note compare_probes run_suite sanitize warm_peers await_peers probe_rates profile_steps backend_of attention \
  attention_by_pass step_kernels attention_for_choices compare_shipped_form step bench_steps bench_steps_in_fp32 bench_peers train_with train_in_bf16 \
  compare_losses compare_backends compare_devices compare_all_devices compare_graphs compare_processes compare_sampling \
  compare_beams time_to_loss

mkdir -p "$(dirname "$output")"
SECONDS=0
{
  printf '# GPU check, %s\n\n```text\n' "$(date -u '+%Y-%m-%d %H:%M UTC')"
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
  "$program" info | without_folders
  printf '```\n'
} >"$output"
! $dry || say "dry run with $("$program" config check --config shakespeare_gpu_metric_published.yaml | head -n 1)"
set -m  # a group of processes for each, so that all of them can be stopped
bash -c warm_peers >"$work/warm" 2>&1 &
background=$!
set +m
# Compilers that run now do not affect these checks, which measure no time.
check "wrappers on the GPU agree with the emulated ones" 20 compare_probes
check "the kernel suite on the GPU" 100 run_suite
check "the backends' losses agree" 60 compare_backends
check "the backends' losses agree in bf16, in the shipped form" 30 compare_shipped_form
check "a replayed step equals an eager step, with dropout and micro-batches" 45 compare_graphs
check "PyTorch's steps are compiled" 40 await_peers 30
kill -- "-$background" 2>/dev/null || true
background=''
check "rates of the device" 20 probe_rates
check "time of a step by kind of work" 60 profile_steps
check "attention without projections, forward and backward apart" 40 attention_by_pass
check "layers, loss and update, by kernels and by operators" 30 step_kernels
check "training steps in bf16" 90 bench_steps
check "PyTorch's steps in bf16, compiled in a graph" 60 bench_peers \
  "--precision bf16 $compile $graph --dropout 0" "--precision bf16 $compile $graph --dropout 0.2"
check "PyTorch's other steps in bf16" 60 bench_peers \
  "--precision bf16 --batches pinned --dropout 0" "--precision bf16 --batches pinned --dropout 0.2" \
  "--precision bf16 $compile --dropout 0" "--precision bf16 $compile --dropout 0.2"
check "PyTorch's steps in tf32 and fp32, compiled in a graph" 60 bench_peers \
  "--precision tf32 $compile $graph --dropout 0" "--precision fp32 $compile $graph --dropout 0"
check "training steps in tf32 and fp32" 30 bench_steps_in_fp32
check "attention by context and width, for backend auto" 40 attention_for_choices
if command -v compute-sanitizer >/dev/null; then
  check "compute-sanitizer memcheck of distances" 20 sanitize memcheck "no order of execution changes a bit"
  check "compute-sanitizer racecheck of distances" 30 sanitize racecheck "no order of execution changes a bit"
  check "compute-sanitizer memcheck of dropout" 20 \
    sanitize memcheck "with dropout kernels are as accurate as eager products that drop the same weights"
  check "compute-sanitizer memcheck of the short backward pass" 20 \
    sanitize memcheck "the short backward pass applies a form that is not symmetric*"
  check "compute-sanitizer racecheck of values of their own" 20 sanitize racecheck "the kernels compute scaled dot product*"
  check "compute-sanitizer memcheck of the kernels around the library's attention" 20 \
    sanitize memcheck "neither order of execution nor strides change a bit of the projection kernels"
else
  printf '\n## compute-sanitizer: not on this machine\n' >>"$output"
fi
check "other models train in bf16 with dropout" 45 train_in_bf16
check "losses on the GPU equal those on the CPU" 75 compare_all_devices
for mixer in scaled_dot_product metric quadratic; do
  check "time to loss, $mixer" 30 time_to_loss "$mixer" 22
done
check "text with graphs equals the text without them" 20 compare_sampling
check "translations with graphs are those without them" 30 compare_beams
check "two processes have the losses of one process" 60 compare_processes
if $dry; then
  "$python" "$scripts/gpu_results.py" canned "$notes"
  "$python" "$scripts/gpu_results.py" write "$notes" "${output%.md}.json"
  "$python" "$scripts/gpu_results.py" every-rule "${output%.md}.json" || ((++failures))
  say "dry run on the CPU: $failures checks failed"
else
  say "$failures checks failed or had no time; results in $output and ${output%.md}.json"
fi
exit $((failures > 0))
