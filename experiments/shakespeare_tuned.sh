#!/usr/bin/env bash
# Shakespeare by characters: each of the five main mixers with the best of its twelve draws (experiments/shakespeare_draws.sh), on
# seeds that no draw used.
SEEDS=${SEEDS:-11 12 13 14 15}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    drawn=$("$experiments/lib/best_draw.py" "$experiments/results/shakespeare_draws.csv" "shakespeare_$mixer.yaml" best_val_loss)
    # shellcheck disable=SC2086  # its words
    run "shakespeare_$mixer.yaml" $drawn --set "train.seed=$seed"
  done
done
finish
