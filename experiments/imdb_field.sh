#!/usr/bin/env bash
# IMDb in one block, with the recipe of experiments/imdb_same_recipe.sh: the mixers of the field, and scaled dot product with and without
# qk_norm. Mixers with an order read a review in both directions. The ratio of the feed-forward branch makes the numbers of trained
# parameters equal within 2%. spatial_gating and static are left out: their tables for 512 tokens have many times the parameters of a block.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

recipe=(--set model.width=64 --set model.dropout=0 --set model.embedding.dropout=0.3 --set train.learning_rate=2e-3)

for seed in $SEEDS; do
  run imdb_scaled_dot_product.yaml "${recipe[@]}" --set "train.seed=$seed"
  run imdb_scaled_dot_product.yaml "${recipe[@]}" --set model.mixer.qk_norm=true --set "train.seed=$seed"
  while read -r mixer ratio; do
    run imdb_scaled_dot_product.yaml "${recipe[@]}" --set "model.mixer=$mixer" --set "model.feed_forward.ratio=$ratio" \
      --set "train.seed=$seed"
  done <<'MIXERS'
differential 2
linear_attention 2
retention 1.5
gated_linear_attention 1.8
mamba2 1.36
delta_net 1.9
gated_delta_net 1.9
rwkv7 1
short_convolution 2
hyena 1
fourier 4
random 4
average_pooling 4
identity 4
MIXERS
done
finish
