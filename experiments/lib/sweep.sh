# Trains a list of configs over seeds, each run once. To be sourced by experiments/NAME.sh, which then lists its runs:
#
#   run CONFIG [--set KEY=VALUE]... [--context N]...    adds a run; --context also evaluates its last checkpoint on the
#                                                       validation split with a context of N tokens (column val_loss_N)
#   run_with MIXER [OPTION=VALUE]...                    adds a run of "${task[@]}", the arguments of `run`, with this mixer at each of
#                                                       "${places[@]}" (default: model.mixer) and train.seed=$seed
#   draw SPACE INDEX [SEED]                             prints the --set arguments of a draw from a space of configs, a path relative to
#                                                       the folder of the scripts; after a failure `run` refuses its output
#   run_best_draw CONFIG COLUMN [ARGUMENT...]           in NAME_tuned.sh: adds a run with train.seed=$seed of the best draw of NAME_draws.sh by
#                                                       a column of validation scores; arguments of lib/best_draw.py
#   finish [ARGUMENT...]                                trains the missing runs, writes the results, and prints
#                                                       `metaformer compare RESULTS ARGUMENT...`
#
# A run is done if its folder has a summary or the results file has its row. Both are identified by the digest of its
# config, so a changed config is a new run. Failed runs are listed at the end (exit code 1) and do not stop others. A sweep
# may be stopped at any time, and started again, also several times at once: it waits for runs of other processes.
#
#   RESULTS=FILE   the results file; default experiments/results/NAME.csv
#   RUNS=FOLDER    the folders of the runs; default runs/NAME. To train everything again, set RESULTS and RUNS to new paths
#   JOBS=N         trains N runs at once, each with an equal part of the threads; default 1
#   SEEDS="1 2 3"  the seeds, for scripts that use $SEEDS
#   PROGRAM=FILE   a built metaformer; default: the program of scripts/run.sh, which builds it
#
# In a Slurm array without gaps each task takes an equal part of the list: sbatch --array=0-2 --wrap experiments/NAME.sh
# RUNS/.sweep/logs contains the output of each run.
# shellcheck shell=bash
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../../scripts/lib/environment.sh"

sweep=$(basename -- "$0" .sh)
experiments="$root/experiments"
RESULTS=$(realpath -m -- "${RESULTS:-$experiments/results/$sweep.csv}")
RUNS=$(realpath -m -- "${RUNS:-$root/runs/$sweep}")
JOBS=${JOBS:-1}
SEEDS=${SEEDS:-1337 1 2}
[[ $JOBS =~ ^[1-9][0-9]*$ ]] || die 2 "JOBS=$JOBS: expected a whole number, at least 1"
if [[ -z ${PROGRAM:-} ]]; then
  "$root/scripts/run.sh" --version >/dev/null
  PROGRAM="$build/metaformer"
fi
found=$(command -v -- "$PROGRAM") || die 2 "PROGRAM=$PROGRAM: no such program"
PROGRAM=$(realpath -- "$found")
own="$RUNS/.sweep"  # the sweep's own files: locks, logs, the order of the rows
busy=75  # another process trains the run
taken_up=76  # a signal has stopped the sweep

# The list of runs: the arguments of `train` and the contexts, quoted; the names of the folders; the keys.
run_arguments=()
run_contexts=()
run_names=()
run_keys=()
failures=()

# A failing $(...) in the arguments of a command does not end a script, so a failure is reported by an argument.
draw() {
  local space=$1
  [[ $space == /* ]] || space="$experiments/$space"
  "$PROGRAM" config draw --space "$space" --index "$2" --seed "${3:-0}" || printf '%s\n' --failed-draw
}

# "shakespeare_metric-score_std=0.3-1337-1a2b3c4d"
name_of() { # config key words...
  local name seed=default word key
  name=$(basename -- "$1" .yaml)
  for word in "${@:3}"; do
    key=${word%%=*}
    case $word in
      --set) ;;
      train.seed=*) seed=${word#*=} ;;
      *) name+="-${key##*.}=${word#*=}" ;;
    esac
  done
  name=${name//[^[:alnum:]._=-]/_}
  printf '%s\n' "${name:0:180}-$seed-${2:0:8}"  # file systems take 255 bytes
}

run() { # config [--set key=value]... [--context n]...
  local config=$1 words=() contexts=() key
  shift
  while (($#)); do
    case $1 in
      --set) words+=(--set "$2") ;;
      --context) contexts+=("$2") ;;
      --failed-draw) die 2 "run $config: its draw failed" ;;
      *) die 2 "run $config: unknown argument '$1'; expected --set KEY=VALUE or --context N" ;;
    esac
    shift 2
  done
  if ! key=$("$PROGRAM" config dump --digest --config "$config" "${words[@]}"); then
    failures+=("$config ${words[*]}: its config is not valid")
    return
  fi
  [[ " ${run_keys[*]} " != *" $key "* ]] || return 0  # the same config twice is one run
  run_keys+=("$key")
  run_names+=("$(name_of "$config" "$key" "${words[@]}")")
  run_arguments+=("$(printf '%q ' --config "$config" "${words[@]}")")
  run_contexts+=("${contexts[*]}")
}

task=() places=(model.mixer)

run_with() { # mixer [option=value]...
  local place option words=()
  for place in "${places[@]}"; do
    words+=(--set "$place.kind=$1")
    for option in "${@:2}"; do words+=(--set "$place.$option"); done
  done
  run "${task[@]}" "${words[@]}" --set "train.seed=$seed"
}

run_best_draw() { # config column [argument of best_draw.py]...
  local drawn
  drawn=$("$experiments/lib/best_draw.py" "$experiments/results/${sweep/%_tuned/_draws}.csv" "$@") || die 2 "run_best_draw $1: no draw"
  # shellcheck disable=SC2086  # its words
  run "$1" $drawn --set "train.seed=$seed"
}

# Whether the results file has a row with the key and the losses for these contexts.
has_row() { # key contexts
  [[ -f $RESULTS ]] || return 1
  sed -E 's/"([^"]|"")*"/quoted/g' "$RESULTS" | awk -F, -v key="$1" -v contexts="$2" '
    NR == 1 { for (i = 1; i <= NF; ++i) column["" $i] = i }
    $1 == key {
      found = 1
      for (n = split(contexts, context, " "); n > 0; --n) {
        name = "val_loss_" context[n]
        if (!(name in column) || $column[name] == "") found = 0
      }
    }
    END { exit !found }'
}

has_files() { # index
  local folder=$RUNS/${run_names[$1]} context
  [[ -f $folder/summary.json ]] || return 1
  for context in ${run_contexts[$1]}; do [[ -f $folder/evaluations/context-$context.json ]] || return 1; done
}

is_done() { has_files "$1" || has_row "${run_keys[$1]}" "${run_contexts[$1]}"; }

# Whether this task of a Slurm array trains the run of that index.
is_ours() {
  (($1 % ${SLURM_ARRAY_TASK_COUNT:-1} == share))
}

# Sets `share`, the part of the list that this task of a Slurm array takes, from 0.
find_share() {
  local first=${SLURM_ARRAY_TASK_MIN:-0} step=${SLURM_ARRAY_TASK_STEP:-1} count=${SLURM_ARRAY_TASK_COUNT:-1}
  share=$(((${SLURM_ARRAY_TASK_ID:-$first} - first) / step))
  ((share >= 0 && share < count)) ||
    die 2 "SLURM_ARRAY_TASK_ID=$SLURM_ARRAY_TASK_ID is not one of $count tasks from $first on; use an array without gaps, such as 0-2"
}

export_runs() { # folders...
  (($#)) || return 0
  "$PROGRAM" compare --export "$RESULTS" --order "$own/order" --export-only "$@" </dev/null
}

# Runs in its own process, which holds the lock as long as it or its training lives. A signal reaches both; training
# saves its state, and then this process ends.
train_one() { # index
  local folder=$RUNS/${run_names[$1]} words=() context lock stopped=''
  trap 'stopped=yes' INT TERM HUP
  exec {lock}>"$own/locks/${run_names[$1]}"
  flock -n "$lock" || return $busy
  eval "words=(${run_arguments[$1]})"
  "$PROGRAM" train "${words[@]}" --out "$folder" --resume --quiet </dev/null || return
  for context in ${run_contexts[$1]}; do
    [[ -z $stopped ]] || return $taken_up
    mkdir -p "$folder/evaluations"
    "$PROGRAM" evaluate --run "$folder" --checkpoint last --context "$context" --json </dev/null \
      >"$folder/evaluations/.context-$context.json" || return
    mv "$folder/evaluations/.context-$context.json" "$folder/evaluations/context-$context.json"
  done
  [[ -z $stopped ]] || return $taken_up
  export_runs "$folder"
}

stop_children() { # number of the signal
  trap '' INT TERM HUP
  say "$sweep: stopping; running trainings save their state"
  local pid
  for pid in "${!children[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  wait
  say "$sweep: stopped; start it again to continue"
  exit $((128 + $1))
}

start() { # index
  set -m  # a process group for each, so that Ctrl-C reaches only this script
  train_one "$1" >"$own/logs/${run_names[$1]}.log" 2>&1 &
  set +m
  children[$!]=$1
}

# Waits for one child. A run that another process trains goes into `waiting`.
reap() {
  local pid='' status=0 index name
  wait -n -p pid "${!children[@]}" || status=$?
  [[ -n $pid ]] || return 0  # a signal
  index=${children[$pid]} name=${run_names[${children[$pid]}]}
  unset "children[$pid]"
  case $status in
    0) say "$sweep: $name is done" ;;
    "$busy") waiting+=("$index") ;;
    *)
      failures+=("$name: exit code $status: $(tail -n 1 "$own/logs/$name.log")")
      say "$sweep: failed: ${failures[-1]}"
      ;;
  esac
}

train_all() { # indices...
  local index
  for index in "$@"; do
    while ((${#children[@]} >= JOBS)); do reap; done
    start "$index"
  done
  while ((${#children[@]})); do reap; done
}

train_missing() {
  local -A children=()
  local index waiting=() missing=()
  trap 'stop_children 2' INT
  trap 'stop_children 15' TERM
  trap 'stop_children 1' HUP
  for index in "${!run_keys[@]}"; do
    if is_ours "$index" && ! is_done "$index"; then missing+=("$index"); fi
  done
  say "$sweep: ${#run_keys[@]} runs, ${#missing[@]} to train"
  while ((${#missing[@]})); do
    waiting=()
    train_all "${missing[@]}"
    missing=("${waiting[@]}")
    ((${#missing[@]} == 0)) || { say "$sweep: waiting for ${#missing[@]} runs of other processes"; sleep "${POLL:-10}"; }
  done
  trap - INT TERM HUP
}

# Writes the rows in the order of the list.
collect() {
  local index folders=()
  for index in "${!run_keys[@]}"; do
    if has_files "$index"; then folders+=("$RUNS/${run_names[$index]}"); fi
  done
  export_runs "${folders[@]}"
}

# shellcheck disable=SC2120
finish() { # arguments of `metaformer compare`
  local share
  find_share
  mkdir -p "$own/logs" "$own/locks"
  printf '%s\n' "${run_keys[@]}" >"$own/.order.$$"
  mv "$own/.order.$$" "$own/order"
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(($(nproc) > JOBS ? $(nproc) / JOBS : 1))}
  train_missing
  collect
  if [[ -f $RESULTS ]]; then "$PROGRAM" compare "$RESULTS" "$@"; fi
  ((${#failures[@]})) || return 0
  say "$sweep: ${#failures[@]} failed:"
  printf '  %s\n' "${failures[@]}" >&2
  exit 1
}
