#!/usr/bin/env bash
# The sorters of ten numbers: every mixer, the steps from scaled dot product to metric attention and constrained metrics with the same
# recipe. Scores start with a standard deviation of 1, and for the attention mixers also with 0.3.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

run_mixer() { # mixer [--set key=value]...
  run "sorter_hard_$1.yaml" "${@:2}" --set "train.seed=$seed"
}

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic_published metric_published; do run_mixer "$mixer"; done
  run_mixer metric_published --set model.mixer.constraint=psd
  run_mixer metric_published --set model.mixer.constraint=psd --set model.mixer.score=distance
  run_mixer metric_published --set model.mixer.constraint=diagonal
  run_mixer metric_published --set model.mixer.constraint=identity --set model.mixer.values=own
  run_mixer metric_published --set model.mixer.constraint=identity
  run_mixer quadratic_published --set model.mixer.form=full
  run sorter_hard_base.yaml --set model.mixer=average_pooling --set "train.seed=$seed"
  run sorter_hard_base.yaml --set model.mixer=identity --set "train.seed=$seed"
  for mixer in scaled_dot_product quadratic_published metric_published; do run_mixer "$mixer" --set model.mixer.score_std=0.3; done
done
finish
