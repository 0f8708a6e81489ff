#!/usr/bin/env bash
# Memory on Shakespeare at equal time: a step with a memory of 64 tokens takes 1.33 times as long as a step without it (`metaformer bench
# step` on one thread), so models without it train for 1.33 times as many steps. A memory of one token shows the effect of
# reading the text in order.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run xl_shakespeare.yaml --set "train.seed=$seed"
  run xl_shakespeare.yaml --set model.memory=0 --set train.steps=2660 --set "train.seed=$seed"
  run xl_shakespeare.yaml --set model.memory=1 --set "train.seed=$seed"
done
finish
