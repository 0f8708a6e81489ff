# The mixers of the field for language models of width 128 and 4 blocks. To be sourced after lib/sweep.sh.
# shellcheck shell=bash

# A mixer and the ratio of the feed-forward branch with which the model has as many parameters as with scaled dot product.
field_mixers="linear_attention 4
gated_linear_attention 4
mamba2 4
delta_net 4
gated_delta_net 4
short_convolution 4
spatial_gating 4
retention 3.5
rwkv7 2.76
hyena 3.39
static 4.5
random 6
average_pooling 6
identity 6"

# Adds runs of a config with $seed: scaled dot product with the given arguments, then each of these mixers.
run_field() { # config argument...
  local mixer ratio
  run "$@" --set model.mixer.qk_norm=true --set "train.seed=$seed"
  while read -r mixer ratio; do
    run "$@" --set "model.mixer=$mixer" --set "model.feed_forward.ratio=$ratio" --set "train.seed=$seed"
  done <<<"$field_mixers"
}
