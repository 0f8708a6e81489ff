#!/usr/bin/env bash
# IMDb: the same twelve draws from one search space for each of the five main mixers, one seed each. experiments/imdb_tuned.sh takes
# the best draw of each mixer.
DRAWS=${DRAWS:-12}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for ((index = 0; index < DRAWS; ++index)); do
  drawn=$(draw "$experiments/spaces/imdb.yaml" "$index")
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    # shellcheck disable=SC2086  # its words
    run "imdb_$mixer.yaml" --set model.width=64 $drawn
  done
done
finish
