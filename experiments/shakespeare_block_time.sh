#!/usr/bin/env bash
# Shakespeare by characters: from the block of 2017 to LLaMA's, with equal training time, that of 2,000 steps of the first block
# (measured interleaved with `metaformer bench step`, 2 threads, AMD EPYC, Zen 4); LLaMA's block also with fewer steps.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

declare -A steps=([2017]=2000 [pre_norm]=1950 [rms_norm]=2000 [no_bias]=2060 [rotary]=1920 [llama]=1960)
for seed in $SEEDS; do
  for block in 2017 pre_norm rms_norm no_bias rotary llama; do
    run "shakespeare_block_$block.yaml" --set "train.steps=${steps[$block]}" --set "train.seed=$seed"
  done
  for fewer in 1500 1000; do
    run shakespeare_block_llama.yaml --set "train.steps=$fewer" --set "train.seed=$seed"
  done
done
finish
