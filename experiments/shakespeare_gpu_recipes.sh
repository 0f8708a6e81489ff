#!/usr/bin/env bash
# Shakespeare by characters on a GPU: the least time to a validation loss of 1.4697, nanoGPT's published result, by
# shakespeare_gpu_fast.yaml, and the lowest loss in five minutes, by shakespeare_gpu_good.yaml, beside nanoGPT's recipe. First variants
# of both with one seed, from which steps, rate, batch, dropout and width are chosen on the validation split (estimate: five minutes
# on an H200), then the three recipes with three seeds. Prints the card, a table of losses, and one of times. Needs a GPU.
SEEDS=${SEEDS:-1337 1 2}
TARGET=${TARGET:-1.4697}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

cards=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || die 2 "$sweep trains on a GPU, and there is none here"
((JOBS == 1)) || die 2 "$sweep measures times: JOBS must be 1"
read -r first_seed _ <<<"$SEEDS"
fast() { run shakespeare_gpu_fast.yaml "$@" --set "train.seed=$first_seed"; }
good() { run shakespeare_gpu_good.yaml "$@" --set "train.seed=$first_seed"; }
fast
fast --set train.steps=700
fast --set train.steps=1400
fast --set train.learning_rate=2.5e-3
fast --set train.learning_rate=1e-2
fast --set train.batch_size=64 --set train.steps=500
fast --set train.batch_size=16 --set train.steps=2000
fast --set model.dropout=0
fast --set model.dropout=0.2
good
good --set model.dropout=0.2
good --set model.dropout=0.4
good --set train.steps=1250
good --set train.steps=5000
good --set train.steps=5000 --set model.dropout=0.4
good --set train.steps=5000 --set model.dropout=0.4 --set model.width=512 --set model.heads=8
good --set train.learning_rate=2.5e-3
for seed in $SEEDS; do
  for recipe in scaled_dot_product fast good; do run "shakespeare_gpu_$recipe.yaml" --set "train.seed=$seed"; done
done
printf '%s, %s\n\n' "$(head -n 1 <<<"$cards")" "$(date -u +%Y-%m-%d)"
trap 'echo; "$experiments/time_to_loss.py" --runs "$RUNS" --loss "$TARGET"' EXIT  # also after failed runs
finish --format markdown \
  --columns best_val_loss,best_val_loss:difference,best_step,val_loss,ms_per_step,train_seconds,wall_seconds,parameters
