#!/usr/bin/env bash
# IMDb: the same twelve draws from one search space, with rates up to 2e-2, for metric and quadratic attention with own
# values and a normalised p, scaled dot product with and without normalised queries and keys, average pooling and the identity,
# one seed each. experiments/imdb_strong_tuned.sh takes the best draw of each.
DRAWS=${DRAWS:-12}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for ((index = 0; index < DRAWS; ++index)); do
  drawn=$(draw "$experiments/spaces/imdb_wide.yaml" "$index")
  # shellcheck disable=SC2086  # its words
  run imdb_scaled_dot_product.yaml --set model.width=64 $drawn
  # shellcheck disable=SC2086
  run imdb_scaled_dot_product.yaml --set model.width=64 $drawn --set model.mixer.qk_norm=true
  for mixer in quadratic metric average_pooling identity; do
    # shellcheck disable=SC2086
    run "imdb_$mixer.yaml" --set model.width=64 $drawn
  done
done
finish
