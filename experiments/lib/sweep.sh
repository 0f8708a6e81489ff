# Trains a list of configs over seeds, each run once. To be sourced by experiments/NAME.sh, or by a bash script in any folder, as
# `source <(metaformer sweep-functions)`. The script NAME.sh then lists its runs:
#
#   run CONFIG [--set KEY=VALUE]... [--context N]...    adds a run; --context also evaluates its last checkpoint on the
#                                                       validation split with a context of N tokens (column val_loss_N)
#   run_with MIXER [OPTION=VALUE]...                    adds a run of "${task[@]}", the arguments of `run`, with this mixer at each of
#                                                       "${places[@]}" (default: model.mixer) and train.seed=$seed
#   draw SPACE INDEX [SEED]                             prints the --set arguments of a draw from a space of configs, a path relative to
#                                                       the folder of the script; after a failure `run` refuses its output
#   run_best_draw CONFIG COLUMN [ARGUMENT...]           in NAME_tuned.sh: adds a run with train.seed=$seed of the best draw of NAME_draws.sh by
#                                                       a column of validation scores; arguments of lib/best_draw.py,
#                                                       without which it is left out
#   finish [ARGUMENT...]                                trains the missing runs, writes the results, and prints
#                                                       `metaformer compare RESULTS ARGUMENT...`
#
# A run is done if its folder has a summary or the results file has its row. Both are identified by the digest of its
# config, so a changed config is a new run. Failed runs are listed at the end (exit code 1) and do not stop others. A sweep
# may be stopped at any time, and started again, also several times at once: it waits for runs of other processes.
#
#   RESULTS=FILE   the results file; default results/NAME.csv beside the script
#   RUNS=FOLDER    the folders of the runs; default runs/NAME, in the root of the repository, or with functions of the program beside
#                  the script. To train everything again, set RESULTS and RUNS to new paths
#   JOBS=N         trains N runs at once, each with an equal part of the threads; default 1
#   SEEDS="1 2 3"  the seeds, for scripts that use $SEEDS
#   PROGRAM=FILE   a built metaformer; default: the program that printed the functions, or that of scripts/run.sh, which builds it
#
# In a Slurm array without gaps each task takes an equal part of the list: sbatch --array=0-2 --wrap experiments/NAME.sh
# RUNS/.sweep/logs contains the output of each run, and the folder of each run its train.log.
# shellcheck shell=bash
if ((${#BASH_SOURCE[@]} < 2)); then  # also in other shells
  printf 'metaformer: error: a sweep is a bash script; source these functions in its file, whose name is that of the sweep\n' >&2
  [[ $- == *i* ]] || exit 2
  return 2  # keeps the terminal open
fi
set -euo pipefail

sweep=$(basename -- "$0" .sh)
if [[ -n ${sweep_program:-} ]]; then  # set by `metaformer sweep-functions`, which prints this file after lib/messages.sh
  [[ -f $0 ]] || die 2 "$0: there is no such file in this folder; source the functions before the script changes its folder"
  [[ $sweep != slurm_script ]] || die 2 "Slurm runs a copy of the script in another folder; start it with sbatch --wrap ./NAME.sh"
  ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)) || die 2 "bash $BASH_VERSION: sweeps need bash 5.1 or newer"
  experiments=$(dirname -- "$(readlink -f -- "$0")")
  root=$experiments
else
  # shellcheck source=scripts/lib/environment.sh
  source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../../scripts/lib/environment.sh"
  experiments="$root/experiments"
fi
RESULTS=$(realpath -m -- "${RESULTS:-$experiments/results/$sweep.csv}")
RUNS=$(realpath -m -- "${RUNS:-$root/runs/$sweep}")
JOBS=${JOBS:-1}
SEEDS=${SEEDS:-1337 1 2}
[[ $JOBS =~ ^[1-9][0-9]*$ ]] || die 2 "JOBS=$JOBS: expected a whole number, at least 1"
PROGRAM=${PROGRAM:-${sweep_program:-}}
if [[ -z $PROGRAM ]]; then
  "$root/scripts/run.sh" --version >/dev/null
  PROGRAM="$build/metaformer"
fi
found=$(command -v -- "$PROGRAM") || die 2 "PROGRAM=$PROGRAM: no such program"
PROGRAM=$(realpath -- "$found")
[[ -z ${sweep_program:-} ]] || cd -- "$experiments"  # configs and data are found from there
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
draw() { # space index [seed]
  if (($# < 2)); then
    say "draw: expected draw SPACE INDEX [SEED]"
    printf '%s\n' --failed-draw
    return
  fi
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
  (($#)) || die 2 "run: expected run CONFIG [--set KEY=VALUE]... [--context N]..."
  local config=$1 words=() contexts=() key
  shift
  while (($#)); do
    case $1 in
      --set | --context) (($# > 1)) || die 2 "run $config: nothing follows $1; expected --set KEY=VALUE or --context N" ;;&
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

need_seed() { # words of the call
  [[ -n ${seed:-} ]] || die 2 "$*: seed is not set; call it in a loop: for seed in \$SEEDS; do $*; done"
}

run_with() { # mixer [option=value]...
  (($#)) || die 2 "run_with: expected run_with MIXER [OPTION=VALUE]..."
  ((${#task[@]})) || die 2 "run_with $*: task is empty; set it to arguments of run, such as task=(my.yaml)"
  need_seed run_with "$@"
  local place option words=()
  for place in "${places[@]}"; do
    words+=(--set "$place.kind=$1")
    for option in "${@:2}"; do words+=(--set "$place.$option"); done
  done
  run "${task[@]}" "${words[@]}" --set "train.seed=$seed"
}

run_best_draw() { # config column [argument of best_draw.py]...
  (($# > 1)) || die 2 "run_best_draw: expected run_best_draw CONFIG COLUMN [ARGUMENT]..."
  local drawn
  [[ -x $experiments/lib/best_draw.py ]] ||
    die 2 "run_best_draw $1: left out here, because it needs Python and lib/best_draw.py of metaformer's repository beside the script"
  need_seed run_best_draw "$@"
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

# How far the sweep is: train_missing sets these.
#   all, finished, failed   numbers of runs of this task: in the list, done, failed since the start
#   children, began         by process: the index of its run, the second of its start
#   summaries               those of the runs that are done
#   timer                   on a terminal: a process whose end redraws the progress

note_done() { # index
  local summary=$RUNS/${run_names[$1]}/summary.json
  ((++finished))
  [[ ! -f $summary ]] || summaries+=("$summary")
}

# "about 35 min left", from the mean time of the runs that are done; nothing if there are none.
time_left() {
  local pid running=()
  for pid in "${!children[@]}"; do running+=($((EPOCHSECONDS - began[$pid]))); done
  ((${#summaries[@]} && all > finished + failed)) || return 0
  awk -v waiting=$((all - finished - failed - ${#children[@]})) -v running="${running[*]}" -v jobs="$JOBS" '
    /^ *"(startup|wall)_seconds":/ { total += $2 }
    END {
      mean = total / (ARGC - 1)
      left = waiting * mean
      for (n = i = split(running, seconds, " "); i > 0; --i) if (seconds[i] < mean) left += mean - seconds[i]
      left /= waiting + n < jobs ? waiting + n : jobs
      if (left < 60) print "less than a minute left"
      else if (left < 6000) printf "about %.0f min left\n", left / 60
      else if (left < 172800) printf "about %.1f h left\n", left / 3600
      else printf "about %.1f days left\n", left / 86400
    }' "${summaries[@]}" 2>/dev/null || true  # a folder may have been deleted
}

# Shows "NAME: 12 of 40 runs done, 3 failed, 2 running; about 35 min left", on a terminal in place of the progress before.
show_progress() {
  local line="metaformer: $sweep: $finished of $all runs done" left
  left=$(time_left)
  ((!failed)) || line+=", $failed failed"
  ((!${#children[@]})) || line+=", ${#children[@]} running"
  line+=${left:+; $left}
  if $on_terminal; then
    (:)  # makes bash set COLUMNS
    printf '\r\033[K%s' "${line:0:${COLUMNS:-80} - 1}" >&2
  else
    printf '%s\n' "$line" >&2
  fi
}

clear_progress() { ! $on_terminal || printf '\r\033[K' >&2; }

stop_timer() {
  [[ -n $timer ]] || return 0
  disown "$timer" 2>/dev/null || true  # its end is not reported
  kill "$timer" 2>/dev/null || true
  timer=''
}

stop_children() { # number of the signal
  trap '' INT TERM HUP
  stop_timer
  clear_progress
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
  children[$!]=$1 began[$!]=$EPOCHSECONDS
  ! $on_terminal || show_progress
}

note_failure() { # index exit-code
  local name=${run_names[$1]} log
  log=$RUNS/$name/train.log
  [[ -f $log ]] || log=$own/logs/$name.log
  ((++failed))
  failures+=("$name: exit code $2: $(tail -n 1 "$own/logs/$name.log"); log: $log")
  say "$sweep: failed: ${failures[-1]}"
}

# Waits for one child, on a terminal for ten seconds at most. A run that another process trains goes into `waiting`.
reap() {
  local pid='' status=0 index
  if $on_terminal && [[ -z $timer ]]; then
    sleep 10 >/dev/null &
    timer=$!
  fi
  # shellcheck disable=SC2086  # no word if there is no timer
  wait -n -p pid "${!children[@]}" $timer || status=$?
  [[ -n $pid ]] || return 0  # a signal
  clear_progress
  if [[ $pid == "$timer" ]]; then
    timer=''
  else
    index=${children[$pid]}
    unset "children[$pid]"
    case $status in
      0)
        note_done "$index"
        $on_terminal || say "$sweep: ${run_names[$index]} is done"
        ;;
      "$busy") waiting+=("$index") ;;
      *) note_failure "$index" "$status" ;;
    esac
  fi
  if $on_terminal || ((status != busy)); then show_progress; fi
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
  local -A children=() began=()
  local index waiting=() missing=() all=0 finished=0 failed=0 summaries=() timer='' on_terminal=false
  if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then on_terminal=true; fi
  trap 'stop_children 2' INT
  trap 'stop_children 15' TERM
  trap 'stop_children 1' HUP
  for index in "${!run_keys[@]}"; do
    is_ours "$index" || continue
    ((++all))
    if is_done "$index"; then note_done "$index"; else missing+=("$index"); fi
  done
  say "$sweep: ${#run_keys[@]} runs, ${#missing[@]} to train"
  while ((${#missing[@]})); do
    waiting=()
    train_all "${missing[@]}"
    missing=("${waiting[@]}")
    ((${#missing[@]})) || break
    clear_progress
    say "$sweep: waiting for ${#missing[@]} runs of other processes"
    sleep "${POLL:-10}"
  done
  stop_timer
  clear_progress
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
  ((${#run_keys[@]} + ${#failures[@]})) || die 2 "$sweep: there are no runs: list them by run or run_with before finish"
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
