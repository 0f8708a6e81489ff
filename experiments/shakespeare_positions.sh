#!/usr/bin/env bash
# Shakespeare by characters: kinds of positions, also with longer contexts than in training (64), except learned positions.
# Sinusoids have an amplitude of 1, so embeddings are multiplied by sqrt(width) as in the paper.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for positions in learned none sinusoidal rotary alibi t5 shaw; do
    options=(--set "model.positions=$positions")
    [[ $positions != sinusoidal ]] || options+=(--set model.embedding.scale=sqrt_width)
    [[ $positions == learned ]] || options+=(--context 128 --context 256)
    run shakespeare_scaled_dot_product.yaml "${options[@]}" --set "train.seed=$seed"
  done
done
finish
