#!/usr/bin/env bash
# Memory and positions on Shakespeare by characters: windows of 64 tokens, with and without a memory of 64; a context of 128 with
# half as many rows in place of the memory; and the other mixers with Transformer-XL's positions.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for memory in 0 64; do
    for positions in learned rotary alibi transformer_xl; do
      run xl_shakespeare.yaml --set "model.memory=$memory" --set "model.positions=$positions" --set "train.seed=$seed"
    done
  done
  run xl_shakespeare.yaml --set model.memory=0 --set model.context=128 --set train.batch_size=6 --set "train.seed=$seed"
  run xl_shakespeare_metric_published.yaml --set "train.seed=$seed"
  run xl_shakespeare_quadratic_published.yaml --set "train.seed=$seed"
done
finish
