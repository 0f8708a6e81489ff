#!/usr/bin/env bash
# Reformer's synthetic task: models trained with 4, 2 and 1 rounds of hashing, and with full attention (a chunk as long as
# the sequence). Afterwards experiments/reformer_rounds.py evaluates each with every number of rounds.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run reformer_copy.yaml --set model.mixer.chunk=255 --set "train.seed=$seed"
  for rounds in 4 2 1; do
    run reformer_copy.yaml --set "model.mixer.rounds=$rounds" --set "train.seed=$seed"
  done
done
finish --metrics accuracy
