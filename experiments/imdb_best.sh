#!/usr/bin/env bash
# IMDb: the config with the best accuracy.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run imdb_best.yaml --set "train.seed=$seed"
done
finish
