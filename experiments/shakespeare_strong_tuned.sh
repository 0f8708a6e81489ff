#!/usr/bin/env bash
# Shakespeare by characters: each mixer with the best of its twelve draws (experiments/shakespeare_strong_draws.sh), on seeds that
# no draw used.
SEEDS=${SEEDS:-11 12 13 14 15}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/slow_scores.sh
source "$experiments/lib/slow_scores.sh"

for seed in $SEEDS; do
  run_best_draw shakespeare_scaled_dot_product.yaml best_val_loss --without model.mixer.qk_norm=true
  run_best_draw shakespeare_scaled_dot_product.yaml best_val_loss --with model.mixer.qk_norm=true --without "$slow_scaled_dot_product"
  run_best_draw shakespeare_quadratic.yaml best_val_loss --without "$slow_quadratic"
  run_best_draw shakespeare_metric.yaml best_val_loss --without "$slow_metric"
  for mixer in average_pooling identity; do run_best_draw "shakespeare_$mixer.yaml" best_val_loss; done
  run_best_draw shakespeare_scaled_dot_product.yaml best_val_loss --with "$slow_scaled_dot_product"
  run_best_draw shakespeare_quadratic.yaml best_val_loss --with "$slow_quadratic"
  run_best_draw shakespeare_metric.yaml best_val_loss --with "$slow_metric"
done
finish
