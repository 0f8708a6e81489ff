#!/usr/bin/env bash
# Shakespeare by characters: from scaled dot product to a metric and to a free form in single steps.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product shared_projection shared_values diagonal_metric metric_published quadratic_published full_form; do
    run "shakespeare_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish
