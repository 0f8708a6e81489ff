#!/usr/bin/env bash
# Selects the form of metric and quadratic attention by validation: as published, with a normalised p, with own values,
# with p before normalisation as values, and with a diagonal metric; beside scaled dot product with and without
# normalised queries and keys. IMDb has the recipe of experiments/imdb_same_recipe.sh, Multi30k three epochs and the mixer in all
# three places. Shakespeare by characters is in experiments/metric_failure.sh.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

# Adds the forms with a normalised p in $task and $places, with common options.
try_normalised() { # [option=value]...
  local mixer
  run_with scaled_dot_product "$@"
  run_with scaled_dot_product "$@" qk_norm=true
  for mixer in metric quadratic; do
    run_with "$mixer" "$@" values=own qk_norm=true
    run_with "$mixer" "$@" values=unnormalised qk_norm=true
  done
  run_with metric "$@" constraint=diagonal values=own qk_norm=true
}

try_others() { # [option=value]...
  local mixer
  for mixer in metric quadratic; do
    run_with "$mixer" "$@"
    run_with "$mixer" "$@" qk_norm=true
    run_with "$mixer" "$@" values=own
  done
}

for seed in $SEEDS; do
  places=(model.mixer)
  task=(imdb_base.yaml --set model.width=64 --set model.dropout=0 --set model.embedding.dropout=0.3 --set train.learning_rate=2e-3)
  try_normalised score_std=0.05
  try_others score_std=0.05
  task=(sorter_hard_base.yaml)
  try_normalised
  try_others
  places=(model.mixer model.encoder.mixer model.cross_mixer)
  task=(multi30k_short.yaml)
  try_normalised
done
finish --by task.kind
