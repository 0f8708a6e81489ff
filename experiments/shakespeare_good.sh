#!/usr/bin/env bash
# Shakespeare by characters: the effect of each choice of shakespeare_good.yaml, by changing one at a time, in runs of 400 steps
# whose schedule falls to 0. A context of 128 has batches of 16, so that all runs see the same number of tokens.
SEEDS=${SEEDS:-1337 1 2}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  short() { run shakespeare_good.yaml --set train.steps=400 "$@" --set "train.seed=$seed"; }
  short
  short --set model.context=128 --set train.batch_size=16
  short --set model.dropout=0
  short --set model.width=128
  short --set model.layers=4
  short --set train.optimizer=adamw --set train.learning_rate=1e-3
  short --set train.learning_rate=1e-2
  short --set model.positions=learned
  short --set model.mixer.qk_norm=false
done
finish
