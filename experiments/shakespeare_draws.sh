#!/usr/bin/env bash
# Shakespeare by characters: the same twelve draws from one search space for each of the five main mixers, one seed each.
# experiments/shakespeare_tuned.sh takes the best draw of each mixer.
DRAWS=${DRAWS:-12}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for ((index = 0; index < DRAWS; ++index)); do
  drawn=$(draw "$experiments/spaces/shakespeare.yaml" "$index")
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    # shellcheck disable=SC2086  # its words
    run "shakespeare_$mixer.yaml" $drawn
  done
done
finish
