#!/usr/bin/env bash
# IMDb: the linear model; regions of words, pooled at once with a bag of n-grams beside them, and under one block with every mixer.
# McNemar's test is in `metaformer compare RUNS/imdb_linear-* RUNS/imdb_regions-*`.
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
