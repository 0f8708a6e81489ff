#!/usr/bin/env bash
# Multi30k, German to English, three and five epochs: metric and quadratic attention with own values and a normalised p,
# and scaled dot product with and without normalised queries and keys, in all three places.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

places=(model.mixer model.encoder.mixer model.cross_mixer)
for seed in $SEEDS; do
  task=(multi30k_short.yaml)
  run_with scaled_dot_product
  run_with scaled_dot_product qk_norm=true
  run_with metric values=own qk_norm=true
  run_with quadratic values=own qk_norm=true
done
for seed in $SEEDS; do
  task=(multi30k_scaled_dot_product.yaml)
  run_with scaled_dot_product
  run_with scaled_dot_product qk_norm=true
  for mixer in metric quadratic; do run "multi30k_$mixer.yaml" --set "train.seed=$seed"; done
done
finish --by train.steps --metrics test_bleu_lowercase,test_bleu,test_chrf,val_loss
