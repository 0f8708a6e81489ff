#!/usr/bin/env bash
# IMDb: each of the five main mixers with the best of its twelve draws (experiments/imdb_draws.sh), on seeds that no draw used.
SEEDS=${SEEDS:-11 12 13 14 15}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    run_best_draw "imdb_$mixer.yaml" best_val_error
  done
done
finish
