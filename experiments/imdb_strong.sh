#!/usr/bin/env bash
# IMDb: metric and quadratic attention with own values and a normalised p, beside scaled dot product with and without
# normalised queries and keys, all with the recipe of scaled dot product (experiments/imdb_same_recipe.sh).
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

recipe=(--set model.width=64 --set model.dropout=0 --set model.embedding.dropout=0.3 --set train.learning_rate=2e-3)

for seed in $SEEDS; do
  run imdb_scaled_dot_product.yaml "${recipe[@]}" --set "train.seed=$seed"
  run imdb_scaled_dot_product.yaml "${recipe[@]}" --set model.mixer.qk_norm=true --set "train.seed=$seed"
  for mixer in metric quadratic average_pooling identity; do
    run "imdb_$mixer.yaml" "${recipe[@]}" --set "train.seed=$seed"
  done
done
finish
