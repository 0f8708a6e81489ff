#!/usr/bin/env bash
# Shakespeare by characters, with the settings of nanoGPT for the CPU: the mixers of the field beside scaled dot product, all
# with the same recipe, and two hybrids. Where a mixer has more or fewer parameters than scaled dot product, the width of the
# feed-forward branch makes up for them; LSTM and GRU have about as many.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/field_mixers.sh
source "$experiments/lib/field_mixers.sh"

for seed in $SEEDS; do
  run_field shakespeare_scaled_dot_product.yaml
  for mixers in "[{mixer: gated_delta_net, layers: 3}, {mixer: {kind: scaled_dot_product, qk_norm: true}}]" \
    "[{mixer: short_convolution, layers: 3}, {mixer: {kind: scaled_dot_product, qk_norm: true}}]"; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixers" --set "train.seed=$seed"
  done
  run shakespeare_lstm.yaml --set "train.seed=$seed"
  run shakespeare_gru.yaml --set "train.seed=$seed"
done
finish
