#!/usr/bin/env bash
# Shakespeare by characters: each mixer with the best of its twelve draws (experiments/shakespeare_strong_draws.sh), on seeds that
# no draw used.
SEEDS=${SEEDS:-11 12 13 14 15}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

# The best draw of a config, by validation data.
tuned() { # CONFIG [ARGUMENT of best_draw.py]...
  local drawn
  drawn=$("$experiments/lib/best_draw.py" "$experiments/results/shakespeare_strong_draws.csv" "$1" best_val_loss "${@:2}")
  # shellcheck disable=SC2086  # its words
  run "$1" $drawn --set "train.seed=$seed"
}

for seed in $SEEDS; do
  tuned shakespeare_scaled_dot_product.yaml --without model.mixer.qk_norm=true
  tuned shakespeare_scaled_dot_product.yaml --with model.mixer.qk_norm=true
  for mixer in quadratic metric average_pooling identity; do tuned "shakespeare_$mixer.yaml"; done
done
finish
