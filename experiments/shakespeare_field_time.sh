#!/usr/bin/env bash
# Shakespeare by characters: the models of experiments/shakespeare_field.sh with equal training time, that of 2,000 steps of scaled
# dot product. experiments/equal_time.py measured the steps, with one thread of an AMD EPYC (Zen 5).
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run shakespeare_scaled_dot_product.yaml --set model.mixer.qk_norm=true --set "train.seed=$seed"
  while read -r mixer ratio steps; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixer" --set "model.feed_forward.ratio=$ratio" \
      --set "train.steps=$steps" --set "train.seed=$seed"
  done <<'STEPS'
STEPS
done
finish
