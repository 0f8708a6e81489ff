#!/usr/bin/env bash
# IMDb: the attention mixers with three equal standard deviations of the scores at the start.
SEEDS=${SEEDS:-1337}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for std in 0.05 0.3 1; do
    for mixer in scaled_dot_product quadratic_published metric_published; do
      run "imdb_$mixer.yaml" --set "model.mixer.score_std=$std" --set "train.seed=$seed"
    done
  done
done
finish --by model.mixer.score_std
