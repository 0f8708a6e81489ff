#!/usr/bin/env bash
# Multi-query associative recall in the cells in which publications contradict each other, with the published amount of training (Arora
# et al. 2024, figure 2): 64 tokens, 4 pairs, 64 passes over 100,000 rows in batches of 512, no warm-up, no clipping, an end at 99%, four
# learning rates; scaled dot product as control. All of it is for a GPU:
#
#   JOBS=8 experiments/recall_published.sh
#   RATES="4.64e-4 2.15e-3" WIDTHS=64 SEEDS="1 2" experiments/recall_published.sh    a part of it
SEEDS=${SEEDS:-1 2 3 4 5}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/recall_cells.sh
source "$experiments/lib/recall_cells.sh"

recipe=(--set train.batch_size=512 --set train.steps=12500 --set train.schedule.warmup_steps=0 --set train.clip=0
  --set "train.optimizer.betas=[0.9,0.999]" --set train.eval_interval=195 --set task.enough=0.99)
for seed in $SEEDS; do
  for width in ${WIDTHS:-64 128}; do
    for mixer in hyena scaled_dot_product; do
      set_cell "64:4:$width" "$mixer"
      for rate in ${RATES:-1e-4 4.64e-4 2.15e-3 1e-2}; do
        run recall_base.yaml "${sets[@]}" "${recipe[@]}" --set "train.learning_rate=$rate" --set "train.seed=$seed"
      done
    done
  done
done
finish
