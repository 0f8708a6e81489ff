#!/usr/bin/env bash
# The sorters of ten numbers: metric and quadratic attention with own values and a normalised p, beside scaled dot product with and without
# normalised queries and keys, all with the same recipe.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run sorter_hard_scaled_dot_product.yaml --set "train.seed=$seed"
  run sorter_hard_scaled_dot_product.yaml --set model.mixer.qk_norm=true --set "train.seed=$seed"
  for mixer in metric quadratic; do run "sorter_hard_$mixer.yaml" --set "train.seed=$seed"; done
  for mixer in average_pooling identity; do run sorter_hard_base.yaml --set "model.mixer=$mixer" --set "train.seed=$seed"; done
done
finish
