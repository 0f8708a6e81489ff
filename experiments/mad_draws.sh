#!/usr/bin/env bash
# MAD (Poli et al. 2024): every mixer on every task with the six settings of the paper (three learning rates, with and without
# weight decay), one seed each. experiments/mad_tuned.sh takes the best setting of each.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/mad_tasks.sh
source "$experiments/lib/mad_tasks.sh"

for name in $tasks; do
  for mixer in $mixers; do
    set_task "$name" "$mixer"
    for rate in $rates; do
      for decay in $decays; do
        run mad_base.yaml "${sets[@]}" --set "train.learning_rate=$rate" \
          --set "train.optimizer.weight_decay=$decay"
      done
    done
  done
done
finish
