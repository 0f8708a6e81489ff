#!/usr/bin/env bash
# Multi-query associative recall: every mixer with the best of its rates at its width (experiments/recall_draws.sh), on seeds that no draw
# used: with 64 tokens and 4 pairs, and with 128 tokens and 8 pairs and more steps.
SEEDS=${SEEDS:-1 2 3 4 5}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/recall_cells.sh
source "$experiments/lib/recall_cells.sh"

run_best() { # cell mixer [argument of run]...
  local rate
  set_cell "64:4:${1##*:}" "$2"
  rate=$("$experiments/lib/best_draw.py" "$experiments/results/recall_draws.csv" recall_base.yaml accuracy --largest --with "${words[@]}" |
    grep -o 'train.learning_rate=[^ ]*') || die 2 "$2: no draw"
  set_cell "$1" "$2"
  run recall_base.yaml "${sets[@]}" --set "$rate" --set "train.seed=$seed" "${@:3}"
}
for seed in $SEEDS; do
  for_each_mixer run_best 64:4
  for mixer in $more_mixers; do run_best 64:4:64 "$mixer"; done
done
run_longer() { run_best "$@" --set train.steps=4000; }
for seed in $SEEDS; do for_each_mixer run_longer 128:8; done
finish
