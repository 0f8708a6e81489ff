#!/usr/bin/env bash
# The sorters of ten numbers: attention mixers and constraints on the metric, with the same recipe.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic metric; do
    run "sorter_hard_$mixer.yaml" --set "train.seed=$seed"
  done
  run sorter_hard_metric.yaml --set model.mixer.constraint=psd --set "train.seed=$seed"
  run sorter_hard_metric.yaml --set model.mixer.constraint=psd --set model.mixer.score=distance --set "train.seed=$seed"
  run sorter_hard_metric.yaml --set model.mixer.constraint=diagonal --set "train.seed=$seed"
done
finish
