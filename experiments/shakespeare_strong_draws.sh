#!/usr/bin/env bash
# Shakespeare by characters: the same twelve draws from one search space, with rates up to 2e-2, for metric and quadratic
# attention with own values and a normalised p, scaled dot product with and without normalised queries and keys, average
# pooling and the identity, one seed each; the mixers with scores also with the parameters of their scores at 0.15 of the rate.
# experiments/shakespeare_strong_tuned.sh takes the best draw of each.
DRAWS=${DRAWS:-12}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/slow_scores.sh
source "$experiments/lib/slow_scores.sh"

for ((index = 0; index < DRAWS; ++index)); do
  drawn=$(draw "$experiments/spaces/shakespeare_wide.yaml" "$index")
  # shellcheck disable=SC2086  # its words
  run shakespeare_scaled_dot_product.yaml $drawn
  # shellcheck disable=SC2086
  run shakespeare_scaled_dot_product.yaml $drawn --set model.mixer.qk_norm=true
  for mixer in quadratic metric average_pooling identity; do
    # shellcheck disable=SC2086
    run "shakespeare_$mixer.yaml" $drawn
  done
  # shellcheck disable=SC2086
  run shakespeare_scaled_dot_product.yaml $drawn --set model.mixer.qk_norm=true --set "$slow_scaled_dot_product"
  # shellcheck disable=SC2086
  run shakespeare_quadratic.yaml $drawn --set "$slow_quadratic"
  # shellcheck disable=SC2086
  run shakespeare_metric.yaml $drawn --set "$slow_metric"
done
finish
