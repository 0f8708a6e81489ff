#!/usr/bin/env bash
# IMDb: each mixer with its own recipe.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    run "imdb_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish
