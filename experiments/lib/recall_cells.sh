# The cells of the comparison of mixers by recall. To be sourced after lib/sweep.sh.
# shellcheck shell=bash

mixers="scaled_dot_product metric linear_attention retention gated_linear_attention mamba2 gated_delta_net rwkv7 short_convolution hyena"
cells="64:4:64 64:4:128 128:8:64 128:8:128"  # tokens, pairs, width

# Sets `words`: the settings of a mixer in a cell, each in its strongest form; and `sets`: the same as arguments.
set_cell() { # cell mixer
  local length pairs width word
  IFS=: read -r length pairs width <<<"$1"
  words=("task.length=$length" "task.pairs=$pairs" "model.context=$length" "model.width=$width" "model.mixer.kind=$2")
  case $2 in
    scaled_dot_product) words+=(model.mixer.qk_norm=true model.positions=learned) ;;
    metric) words+=(model.mixer.values=own model.mixer.qk_norm=true model.positions=learned) ;;
    linear_attention) words+=(model.mixer.features=taylor) ;;
  esac
  sets=()
  for word in "${words[@]}"; do sets+=(--set "$word"); done
}
