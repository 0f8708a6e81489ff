# The tasks of MAD and the mixers that are compared on them. To be sourced after lib/sweep.sh.
# shellcheck shell=bash

mixers="scaled_dot_product linear_attention retention gated_linear_attention mamba2 gated_delta_net rwkv7 short_convolution hyena average_pooling"
tasks="in_context_recall noisy_recall fuzzy_recall selective_copy compression memorisation"
steps=${STEPS:-20000}  # as published; fewer are another study, and another results file

# Sets `words`: the settings of a mixer on a task; and `sets`: the same as arguments.
set_task() { # task mixer
  local kind=$1 examples=12800 options=() word
  case $1 in
    in_context_recall | fuzzy_recall) options=(task.targets=tokens) ;;
    noisy_recall) kind=in_context_recall options=(task.targets=tokens task.vocabulary=32 task.noise=0.2) ;;
    memorisation) examples=256 ;;
  esac
  words=("task.kind=$kind" "task.examples=$examples" task.held_out=1280 "${options[@]}" "train.steps=$steps" "model.mixer.kind=$2")
  [[ $2 != scaled_dot_product ]] || words+=(model.positions=rotary model.mixer.qk_norm=true)
  [[ $2 != linear_attention ]] || words+=(model.mixer.features=taylor)
  sets=()
  for word in "${words[@]}"; do sets+=(--set "$word"); done
}
