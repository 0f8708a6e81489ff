#!/usr/bin/env bash
# Shakespeare by characters, with nanoGPT's settings for a GPU: five mixers with the same recipe, in their shipped forms, with
# three seeds. Prints the card and a table of losses and times; 15 runs of 5,000 steps. Needs a GPU.
SEEDS=${SEEDS:-1337 1 2}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

cards=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || die 2 "$sweep trains on a GPU, and there is none here"
for seed in $SEEDS; do
  for mixer in scaled_dot_product quadratic metric average_pooling identity; do
    run "shakespeare_gpu_$mixer.yaml" --set "train.seed=$seed"
  done
done
printf '%s, %s\n\n' "$(head -n 1 <<<"$cards")" "$(date -u +%Y-%m-%d)"
finish --margin 0.02 --format markdown \
  --columns best_val_loss,best_val_loss:difference,best_val_loss:equivalent,best_step,val_loss,ms_per_step,train_seconds,mixer_parameters
