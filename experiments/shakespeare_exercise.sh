#!/usr/bin/env bash
# A common exercise: language models of Shakespeare by words, a feed-forward one, a recurrent one and the transformer of 2017,
# with embeddings of the same width and the same dropout. Compares the transformer with the recurrent model, and with fewer
# heads or layers. Further runs have equal parameters (a wider LSTM), and equal time, that of 600 steps of the transformer
# (`metaformer bench step`, interleaved, 1 thread).
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
