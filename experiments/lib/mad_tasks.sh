# The tasks of MAD and the mixers that are compared on them. To be sourced after lib/sweep.sh.
# shellcheck shell=bash

mixers="scaled_dot_product linear_attention gated_linear_attention mamba2 gated_delta_net rwkv7 short_convolution hyena"
tasks="in_context_recall noisy_recall fuzzy_recall selective_copy compression memorisation"
# By default as published. Other settings are another study, which needs another results file.
steps=${STEPS:-20000} rows=${ROWS:-128} rates=${RATES:-1e-4 5e-4 1e-3} decays=${DECAYS:-0 0.1}

# Sets `words`: the settings of a mixer on a task; and `sets`: the same as arguments.
set_task() { # task mixer
  local kind=$1 examples=12800 options=() word
  case $1 in
    in_context_recall) options=(task.targets=tokens task.noise=0) ;;  # separates its draws from those with noise
    fuzzy_recall) options=(task.targets=tokens) ;;
    noisy_recall) kind=in_context_recall options=(task.targets=tokens task.vocabulary=32 task.noise=0.2) ;;
    memorisation) examples=256 ;;
  esac
  words=("task.kind=$kind" "task.examples=$examples" task.held_out=1280 "${options[@]}" "train.steps=$steps" "train.batch_size=$rows" "model.mixer.kind=$2")
  [[ $2 != scaled_dot_product ]] || words+=(model.positions=rotary)  # as in recall_cells.sh without qk_norm
  [[ $2 != linear_attention ]] || words+=(model.mixer.features=taylor)
  sets=()
  for word in "${words[@]}"; do sets+=(--set "$word"); done
}
