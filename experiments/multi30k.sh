#!/usr/bin/env bash
# Multi30k, German to English: the mixers with scores in all three places, five epochs.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for mixer in scaled_dot_product metric_published quadratic_published; do
    run "multi30k_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish --metrics test_bleu_lowercase,test_bleu,test_chrf,val_loss
