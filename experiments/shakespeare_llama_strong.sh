#!/usr/bin/env bash
# Shakespeare by characters in LLaMA's block with Muon (shakespeare_fast.yaml): metric and quadratic attention with own
# values and a normalised p, beside scaled dot product with and without normalised queries and keys. Average pooling and the
# identity have no scores, on which rotary positions act. They have learned positions, and are compared with scaled dot product
# with learned positions.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

task=(shakespeare_fast.yaml)
for seed in $SEEDS; do
  run shakespeare_fast.yaml --set "train.seed=$seed"
  run_with scaled_dot_product qk_norm=false
  run_with metric values=own qk_norm=true
  run_with quadratic values=own qk_norm=true
  run shakespeare_fast.yaml --set model.positions=learned --set "train.seed=$seed"
  for mixer in average_pooling identity; do
    run shakespeare_fast.yaml --set "model.mixer=$mixer" --set model.positions=learned --set "train.seed=$seed"
  done
done
finish
