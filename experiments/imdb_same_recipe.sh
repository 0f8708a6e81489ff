#!/usr/bin/env bash
# IMDb: every mixer with the recipe of scaled dot product, so that only the mixer differs, with two standard deviations of the
# scores at the start. The steps from scaled dot product to metric attention have only the first.
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

recipe=(--set model.width=64 --set model.dropout=0 --set model.embedding.dropout=0.3 --set train.learning_rate=2e-3)
run_mixer() { # mixer [--set key=value]...
  run "imdb_$1.yaml" "${recipe[@]}" "${@:2}" --set "train.seed=$seed"
}

for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic_published metric_published average_pooling identity; do run_mixer "$mixer"; done
  run_mixer metric_published --set model.mixer.constraint=identity --set model.mixer.values=own
  run_mixer metric_published --set model.mixer.constraint=identity
  run_mixer metric_published --set model.mixer.constraint=diagonal
  run_mixer quadratic_published --set model.mixer.form=full
  for mixer in scaled_dot_product quadratic_published metric_published; do run_mixer "$mixer" --set model.mixer.score_std=1; done
done
finish
