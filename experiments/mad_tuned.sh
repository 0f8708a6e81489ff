#!/usr/bin/env bash
# MAD: every mixer on every task with the best of its settings (experiments/mad_draws.sh), on seeds that no draw used.
SEEDS=${SEEDS:-1 2 3}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/mad_tasks.sh
source "$experiments/lib/mad_tasks.sh"

for seed in $SEEDS; do
  for name in $tasks; do
    for mixer in $mixers; do
      set_task "$name" "$mixer"
      run_best_draw mad_base.yaml accuracy --largest --with "${words[@]}"
    done
  done
done
finish
