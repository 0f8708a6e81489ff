#!/usr/bin/env bash
# IMDb: each mixer with the best of its twelve draws (experiments/imdb_strong_draws.sh), on seeds that no draw used.
SEEDS=${SEEDS:-11 12 13 14 15}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run_best_draw imdb_scaled_dot_product.yaml best_val_error --without model.mixer.qk_norm=true
  run_best_draw imdb_scaled_dot_product.yaml best_val_error --with model.mixer.qk_norm=true
  for mixer in quadratic metric average_pooling identity; do run_best_draw "imdb_$mixer.yaml" best_val_error; done
done
finish
