#!/usr/bin/env bash
# Shakespeare by characters: the effect of each choice of shakespeare_fast.yaml, by undoing one at a time.
SEEDS=${SEEDS:-1337 1 2}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  without() { run shakespeare_fast.yaml "$@" --set "train.seed=$seed"; }
  without
  without --set train.optimizer=adamw --set train.learning_rate=2e-3
  without --set train.optimizer=adamw --set train.learning_rate=5e-3
  without --set train.learning_rate=5e-3
  without --set train.learning_rate=2e-2
  without --set train.schedule.floor=1e-3
  without --set train.optimizer.momentum=0.95
  without --set train.optimizer.weight_decay=0.1
  without --set train.optimizer.iterations=3
  without --set train.optimizer.iterations=5
  without --set model.mixer.qk_norm=false
  without --set model.positions=learned
  without --set model.norm.kind=layer_norm
  without --set model.feed_forward=mlp --set model.feed_forward.activation=gelu
  without --set model.feed_forward=mlp --set model.feed_forward.activation=relu
  without --set train.precision=fp32
done
finish
