#!/usr/bin/env bash
# Lists of ten random symbols to copy and to reverse: mixers with scores in all three places; mixers without scores in the encoder, in
# the decoder's self-attention and in both, with scaled dot product in the other places.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for task in copy reversal; do
    for mixer in scaled_dot_product metric quadratic; do
      run "seq2seq_$task.yaml" --set "model.mixer=$mixer" --set "model.cross_mixer=$mixer" --set "model.encoder.mixer=$mixer" \
        --set "train.seed=$seed"
    done
    for mixer in average_pooling identity; do
      run "seq2seq_$task.yaml" --set "model.encoder.mixer=$mixer" --set "train.seed=$seed"
      run "seq2seq_$task.yaml" --set "model.mixer=$mixer" --set "train.seed=$seed"
      run "seq2seq_$task.yaml" --set "model.encoder.mixer=$mixer" --set "model.mixer=$mixer" --set "train.seed=$seed"
    done
  done
done
finish --by data.synthetic.kind
