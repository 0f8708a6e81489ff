#!/usr/bin/env bash
# Shakespeare by subwords: scaled dot product and metric attention with the same recipe.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product metric; do
    run "shakespeare_subword_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish
