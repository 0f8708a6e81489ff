#!/usr/bin/env bash
# Multi-query associative recall: every mixer in every cell with the best of its rates (experiments/recall_draws.sh), on seeds
# that no draw used.
SEEDS=${SEEDS:-1 2 3 4 5}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/recall_cells.sh
source "$experiments/lib/recall_cells.sh"

for seed in $SEEDS; do
  for cell in $cells; do
    for mixer in $mixers; do
      set_cell "$cell" "$mixer"
      run_best_draw recall_base.yaml best_val_loss --with "${words[@]}"
    done
  done
done
finish
