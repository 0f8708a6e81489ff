#!/usr/bin/env bash
# Shakespeare by subwords: every mixer and the steps from scaled dot product to metric attention with the same recipe. Scores start
# with a standard deviation of 1, and for the attention mixers also with 0.3.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

run_mixer() { # mixer [--set key=value]...
  run "shakespeare_subword_$1.yaml" "${@:2}" --set "train.seed=$seed"
}

for seed in $SEEDS; do
  for mixer in scaled_dot_product metric_published; do run_mixer "$mixer"; done
  run_mixer base --set model.mixer=quadratic
  run_mixer base --set model.mixer=average_pooling
  run_mixer base --set model.mixer=identity
  run_mixer metric_published --set model.mixer.constraint=identity --set model.mixer.values=own
  run_mixer metric_published --set model.mixer.constraint=identity
  run_mixer metric_published --set model.mixer.constraint=diagonal
  run_mixer base --set model.mixer.kind=quadratic --set model.mixer.form=full
  for mixer in scaled_dot_product metric_published; do run_mixer "$mixer" --set model.mixer.score_std=0.3; done
  run_mixer base --set model.mixer.kind=quadratic --set model.mixer.score_std=0.3
done
finish
