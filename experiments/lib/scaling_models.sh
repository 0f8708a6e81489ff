# Models of several sizes. To be sourced after lib/sweep.sh.
# shellcheck shell=bash
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"
write_texts reviews

mixers="scaled_dot_product metric mamba2 gated_delta_net short_convolution"
tokens_per_parameter=${TOKENS_PER_PARAMETER:-5}

# Sets `words`: the settings of a model; and `sets`: the same as arguments, with a number of steps in proportion to its parameters in
# blocks.
set_model() { # mixer layers:width
  local layers width word
  IFS=: read -r layers width <<<"$2"
  words=("data.path=$DATA/reviews/train.jsonl" "data.validation_path=$DATA/reviews/validation.jsonl" "model.layers=$layers"
    "model.width=$width" "model.heads=$((width / 32))" "model.mixer.kind=$1")
  case $1 in
    scaled_dot_product) words+=(model.mixer.qk_norm=true) ;;
    metric) words+=(model.mixer.values=own model.mixer.qk_norm=true) ;;
  esac
  sets=(--set "train.steps=$((tokens_per_parameter * 12 * layers * width * width / 1024))")
  for word in "${words[@]}"; do sets+=(--set "$word"); done
}
