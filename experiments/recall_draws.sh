#!/usr/bin/env bash
# Multi-query associative recall (Arora et al. 2024): every mixer in every cell of tokens, pairs and width with the four learning
# rates of the published code, one seed each. experiments/recall_tuned.sh takes the best rate of each.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/recall_cells.sh
source "$experiments/lib/recall_cells.sh"

for cell in $cells; do
  for mixer in $mixers; do
    set_cell "$cell" "$mixer"
    for rate in 1e-4 4.64e-4 2.15e-3 1e-2; do
      run recall_base.yaml "${sets[@]}" --set "train.learning_rate=$rate"
    done
  done
done
finish
