#!/usr/bin/env bash
# Multi30k, German to English, three epochs: every mixer in the encoder, in the decoder's self-attention and
# in both; metric and quadratic attention also in all three places. Other places have scaled dot product.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run multi30k_short.yaml --set "train.seed=$seed"
  for mixer in metric quadratic average_pooling identity; do
    both=(--set "model.encoder.mixer=$mixer" --set "model.mixer=$mixer")
    run multi30k_short.yaml "${both[@]:0:2}" --set "train.seed=$seed"
    run multi30k_short.yaml "${both[@]:2}" --set "train.seed=$seed"
    run multi30k_short.yaml "${both[@]}" --set "train.seed=$seed"
    if [[ $mixer == metric || $mixer == quadratic ]]; then
      run multi30k_short.yaml "${both[@]}" --set "model.cross_mixer=$mixer" --set "train.seed=$seed"
    fi
  done
done
finish --metrics test_bleu_lowercase,test_bleu,test_chrf,val_loss
