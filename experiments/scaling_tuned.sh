#!/usr/bin/env bash
# Models from 0.1 to 1.5 million parameters in blocks, with 5 tokens for each parameter and the learning rate that was best at width 64
# (experiments/scaling_draws.sh), and one size more, whose loss experiments/scaling_table.py predicts from the others. With other sizes
# (LAYERS:WIDTH, the width a multiple of 32) or more tokens it is a study for a larger machine:
#
#   SIZES="4:128 8:256 12:512 16:768" TOKENS_PER_PARAMETER=20 RESULTS=large.csv IMDB=aclImdb_v1.tar.gz experiments/scaling_tuned.sh
SEEDS=${SEEDS:-1 2}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/scaling_models.sh
source "$experiments/lib/scaling_models.sh"

# Adds a run with the best rate of the mixer's draws at width 64.
run_size() { # mixer size
  local rate
  set_model "$1" 2:64
  rate=$("$experiments/lib/best_draw.py" "$experiments/results/scaling_draws.csv" scaling_base.yaml best_val_loss --with "${words[@]}" |
    grep -o 'train.learning_rate=[^ ]*') || die 2 "$1: no draw"
  set_model "$1" "$2"
  run scaling_base.yaml "${sets[@]}" --set "$rate" --set "train.seed=$seed"
}
for size in ${SIZES:-2:64 3:64 3:96 4:128 5:160 6:192}; do
  for mixer in $mixers; do
    for seed in $SEEDS; do run_size "$mixer" "$size"; done
  done
done
finish
