# The cells of the comparison of mixers by recall. To be sourced after lib/sweep.sh.
# shellcheck shell=bash

mixers="scaled_dot_product metric linear_attention mamba2 gated_delta_net rwkv7 short_convolution hyena"
more_mixers="retention gated_linear_attention delta_net spatial_gating static random average_pooling identity"

# Calls a function with every mixer in both widths of a cell of tokens and pairs.
for_each_mixer() { # function tokens:pairs
  local width mixer
  for width in 64 128; do
    for mixer in $mixers; do "$1" "$2:$width" "$mixer"; done
  done
}

# Sets `words`: the settings of a mixer in a cell, each in its strongest form; and `sets`: the same as arguments. Scaled dot product
# learns more without qk_norm, metric attention with it (the draws of experiments/recall_draws.sh).
set_cell() { # tokens:pairs:width mixer [qk_norm of the two attention mixers]
  local length pairs width word
  IFS=: read -r length pairs width <<<"$1"
  words=("task.length=$length" "task.pairs=$pairs" "model.context=$length" "model.width=$width" "model.mixer.kind=$2")
  case $2 in
    scaled_dot_product) words+=("model.mixer.qk_norm=${3:-false}" model.positions=learned) ;;
    metric) words+=(model.mixer.values=own "model.mixer.qk_norm=${3:-true}" model.positions=learned) ;;
    linear_attention) words+=(model.mixer.features=taylor) ;;
  esac
  sets=()
  for word in "${words[@]}"; do sets+=(--set "$word"); done
}
