#!/usr/bin/env bash
# Shakespeare by words: scaled dot product and metric attention with the same recipe.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product metric_published; do
    run "shakespeare_word_$mixer.yaml" --set "train.seed=$seed"
  done
  run shakespeare_word_base.yaml --set model.mixer=quadratic --set "train.seed=$seed"
done
finish
