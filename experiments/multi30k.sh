#!/usr/bin/env bash
# Multi30k, German to English: the mixers in the encoder, in the decoder (where the target's tokens see each other), in both, and
# those with scores everywhere, with one recipe. Other places have scaled dot product.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for everywhere in scaled_dot_product metric quadratic; do
    run "multi30k_$everywhere.yaml" --set "train.seed=$seed"
  done
  for mixer in metric quadratic average_pooling identity; do
    run multi30k_scaled_dot_product.yaml --set "model.encoder.mixer=$mixer" --set "train.seed=$seed"
    run multi30k_scaled_dot_product.yaml --set "model.mixer=$mixer" --set "train.seed=$seed"
    run multi30k_scaled_dot_product.yaml --set "model.encoder.mixer=$mixer" --set "model.mixer=$mixer" --set "train.seed=$seed"
  done
done
finish --metrics test_bleu_lowercase,test_bleu,test_chrf,val_loss
