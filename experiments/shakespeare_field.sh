#!/usr/bin/env bash
# Shakespeare by characters, with the settings of nanoGPT for the CPU: the mixers of the field beside scaled dot product, all
# with the same recipe, and two hybrids. Where a mixer has more or fewer parameters than scaled dot product, the width of the
# feed-forward branch makes up for them; LSTM and GRU have about as many.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run shakespeare_scaled_dot_product.yaml --set model.mixer.qk_norm=true --set "train.seed=$seed"
  for mixer in linear_attention gated_linear_attention mamba2 delta_net gated_delta_net short_convolution spatial_gating; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixer" --set "train.seed=$seed"
  done
  while read -r mixer ratio; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixer" --set "model.feed_forward.ratio=$ratio" \
      --set "train.seed=$seed"
  done <<'MIXERS'
retention 3.5
rwkv7 2.76
hyena 3.39
static 4.5
random 6
average_pooling 6
identity 6
MIXERS
  for mixers in "[{mixer: gated_delta_net, layers: 3}, {mixer: {kind: scaled_dot_product, qk_norm: true}}]" \
    "[{mixer: short_convolution, layers: 3}, {mixer: {kind: scaled_dot_product, qk_norm: true}}]"; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixers" --set "train.seed=$seed"
  done
  run shakespeare_lstm.yaml --set "train.seed=$seed"
  run shakespeare_gru.yaml --set "train.seed=$seed"
done
finish
