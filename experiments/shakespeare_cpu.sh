#!/usr/bin/env bash
# Shakespeare by characters, with the settings of nanoGPT for the CPU: all mixers with the same recipe.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do
    run "shakespeare_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish
