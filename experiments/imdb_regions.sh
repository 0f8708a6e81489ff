#!/usr/bin/env bash
# IMDb: the linear model; regions of words, pooled without a block and with a bag of n-grams; and regions with one block and every
# mixer. `metaformer compare RUNS/imdb_linear-* RUNS/imdb_regions-*` prints McNemar's test.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run imdb_linear.yaml --set data.validation_fraction=0.05 --set "train.seed=$seed"
  run imdb_regions.yaml --set "train.seed=$seed"
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    run "imdb_region_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish
