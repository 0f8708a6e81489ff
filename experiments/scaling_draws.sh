#!/usr/bin/env bash
# Tests whether Muon's learning rate holds for other widths: three rates at widths 64 and 128, for the models of experiments/scaling.sh.
#
#   IMDB=aclImdb_v1.tar.gz experiments/scaling_draws.sh
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/scaling_models.sh
source "$experiments/lib/scaling_models.sh"

for size in 2:64 2:128; do
  for mixer in $mixers; do
    set_model "$mixer" "$size"
    for rate in 5e-3 1e-2 2e-2; do run scaling_base.yaml "${sets[@]}" --set "train.learning_rate=$rate"; done
  done
done
finish
