#!/usr/bin/env bash
# IMDb: each mixer with the best of its twelve draws (experiments/imdb_strong_draws.sh), on seeds that no draw used.
SEEDS=${SEEDS:-11 12 13 14 15}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

# The best draw of a config, by validation data.
tuned() { # CONFIG [ARGUMENT of best_draw.py]...
  local drawn
  drawn=$("$experiments/lib/best_draw.py" "$experiments/results/imdb_strong_draws.csv" "$1" best_val_error "${@:2}")
  # shellcheck disable=SC2086  # its words
  run "$1" $drawn --set "train.seed=$seed"
}

for seed in $SEEDS; do
  tuned imdb_scaled_dot_product.yaml --without model.mixer.qk_norm=true
  tuned imdb_scaled_dot_product.yaml --with model.mixer.qk_norm=true
  for mixer in quadratic metric average_pooling identity; do tuned "imdb_$mixer.yaml"; done
done
finish
