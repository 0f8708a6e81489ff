#!/usr/bin/env bash
# Shakespeare by characters with scaled dot product, 1,000 steps: norms before or after the residual sum, with 4 and 12 blocks, with
# and without warm-up; then blocks without the residual connection.
SEEDS=${SEEDS:-1337 1 2}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

short() { run shakespeare_scaled_dot_product.yaml --set train.steps=1000 "$@" --set "train.seed=$seed"; }

for seed in $SEEDS; do
  for layers in 4 12; do
    for warmup in 100 0; do
      for position in pre post; do
        short --set model.layers="$layers" --set train.schedule.warmup_steps="$warmup" --set model.norm.position="$position"
      done
    done
    short --set model.layers="$layers" --set train.schedule.warmup_steps=100 --set model.norm.position=pre --set model.residual=false
  done
done
finish --by model.layers
