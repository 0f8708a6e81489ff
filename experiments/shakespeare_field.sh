#!/usr/bin/env bash
# Shakespeare by characters, with the settings of nanoGPT for the CPU: the mixers with a matrix state beside scaled dot
# product, all with the same recipe. Where a mixer has more parameters than scaled dot product, the feed-forward branch has
# fewer.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  run shakespeare_scaled_dot_product.yaml --set model.mixer.qk_norm=true --set "train.seed=$seed"
  for mixer in linear_attention gated_linear_attention mamba2 delta_net gated_delta_net; do
    run shakespeare_scaled_dot_product.yaml --set "model.mixer=$mixer" --set "train.seed=$seed"
  done
  run shakespeare_scaled_dot_product.yaml --set model.mixer=retention --set model.feed_forward.ratio=3.5 \
    --set "train.seed=$seed"
  run shakespeare_scaled_dot_product.yaml --set model.mixer=rwkv7 --set model.feed_forward.ratio=2.76 --set "train.seed=$seed"
done
finish
