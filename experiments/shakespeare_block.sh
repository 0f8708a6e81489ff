#!/usr/bin/env bash
# Shakespeare by characters: from the block of 2017 to LLaMA's, with equal numbers of steps.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for block in 2017 pre_norm rms_norm no_bias rotary llama; do
    run "shakespeare_block_$block.yaml" --set "train.seed=$seed"
  done
done
finish
