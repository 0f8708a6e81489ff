#!/usr/bin/env bash
# The form of metric and quadratic attention, chosen by validation on four tasks: as published, with a normalised p, with values
# of their own, with both, and with both a diagonal metric or scores that start with a standard deviation of 0.3; beside scaled
# dot product with and without normalised queries and keys. Shakespeare by characters has the recipe of
# experiments/metric_failure.sh, IMDb that of experiments/imdb_same_recipe.sh, Multi30k three epochs and the mixer in all three
# places.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

# Every form, in $task and $places, with options that all of them have but the last.
try_forms() { # [option=value]...
  local mixer
  run_with scaled_dot_product "$@"
  run_with scaled_dot_product "$@" qk_norm=true
  for mixer in metric quadratic; do
    run_with "$mixer" "$@"
    run_with "$mixer" "$@" qk_norm=true
    run_with "$mixer" "$@" values=own
    run_with "$mixer" "$@" values=own qk_norm=true
  done
  run_with metric "$@" constraint=diagonal values=own qk_norm=true
  for mixer in metric quadratic; do run_with "$mixer" values=own qk_norm=true score_std=0.3; done
}

for seed in $SEEDS; do
  places=(model.mixer)
  task=(shakespeare_base.yaml --set train.steps=1200 --set train.schedule.warmup_steps=395 --set model.dropout=0.01424
    --set train.optimizer.weight_decay=0.06804 --set train.learning_rate=6.7e-3)
  try_forms
  task=(imdb_base.yaml --set model.width=64 --set model.dropout=0 --set model.embedding.dropout=0.3 --set train.learning_rate=2e-3)
  try_forms score_std=0.05
  task=(sorter_hard_base.yaml)
  try_forms
  places=(model.mixer model.encoder.mixer model.cross_mixer)
  task=(multi30k_short.yaml)
  try_forms
done
finish --by task.kind
