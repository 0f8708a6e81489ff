#!/usr/bin/env bash
# Shakespeare by characters: the models of experiments/shakespeare_field.sh with equal training time, that of 2,000 steps of scaled dot
# product with normalised queries and keys. experiments/equal_time.py measured the steps, with one thread of an AMD EPYC (Zen 5).
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run shakespeare_scaled_dot_product.yaml --set model.mixer.qk_norm=true --set "train.seed=$seed"
  while read -r mixer ratio steps; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixer" --set "model.feed_forward.ratio=$ratio" \
      --set "train.steps=$steps" --set "train.seed=$seed"
  done <<'STEPS'
linear_attention 4 1620
gated_linear_attention 4 1790
mamba2 4 1450
delta_net 4 1430
gated_delta_net 4 1540
short_convolution 4 2270
spatial_gating 4 1910
retention 3.5 1790
rwkv7 2.76 1090
hyena 3.39 1630
static 4.5 2250
random 6 2360
average_pooling 6 2380
identity 6 2520
STEPS
  run shakespeare_lstm.yaml --set train.steps=1950 --set "train.seed=$seed"
  run shakespeare_gru.yaml --set train.steps=620 --set "train.seed=$seed"
done
finish
