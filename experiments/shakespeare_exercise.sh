#!/usr/bin/env bash
# An exercise that is often set: language models of Shakespeare by words, a feed-forward one, a recurrent one and the transformer of 2017,
# with embeddings of the same width and the same dropout. Is the transformer worse than the recurrent model, and does it gain from fewer
# heads or layers? Then with as many parameters (a wider LSTM), and with as many steps as take the time of 600 steps of the transformer
# (`metaformer bench step` in turn, 1 thread).
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

declare -A steps=([lstm]=676 [feed_forward]=700)
for seed in $SEEDS; do
  for model in feed_forward lstm transformer; do
    run "word_$model.yaml" --set "train.seed=$seed"
  done
  run word_lstm.yaml --set model.carry_state=false --set "train.seed=$seed"
  for change in heads=1 heads=2 layers=1 layers=2; do
    run word_transformer.yaml --set "model.$change" --set "train.seed=$seed"
  done
  run word_lstm.yaml --set model.width=152 --set "train.seed=$seed"
  for model in feed_forward lstm; do
    run "word_$model.yaml" --set "train.steps=${steps[$model]}" --set "train.seed=$seed"
  done
done
finish
