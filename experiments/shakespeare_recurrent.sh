#!/usr/bin/env bash
# Shakespeare by characters: LSTM, GRU and the feed-forward model beside the transformer, with equal numbers of parameters, first with
# equal steps, then with equal time, that of 2,000 steps of the transformer (`metaformer bench step`, interleaved, 1 thread). Recurrent
# models start from zeros in random windows, or carry their state through the text; the transformer reads random windows, or has a
# memory.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

declare -A steps=([lstm]=2360 [gru]=1310 [feed_forward]=2790)
for seed in $SEEDS; do
  run shakespeare_scaled_dot_product.yaml --set "train.seed=$seed"
  run xl_shakespeare.yaml --set "train.seed=$seed"
  for model in lstm gru; do
    for carry in false true; do
      run "shakespeare_$model.yaml" --set "model.carry_state=$carry" --set "train.seed=$seed"
      run "shakespeare_$model.yaml" --set "model.carry_state=$carry" --set "train.steps=${steps[$model]}" --set "train.seed=$seed"
    done
  done
  run shakespeare_feed_forward.yaml --set "train.seed=$seed"
  run shakespeare_feed_forward.yaml --set "train.steps=${steps[feed_forward]}" --set "train.seed=$seed"
done
finish
