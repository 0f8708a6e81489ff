#!/usr/bin/env bash
# The form of metric and quadratic attention, chosen by validation: values of their own, normalised p, both, and a diagonal metric. IMDb
# and the ten digits with the recipe of scaled dot product, Multi30k in three epochs with the mixer in all three places. Shakespeare by
# characters is in experiments/metric_failure.sh.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

translate() { # mixer [option=value]...
  local place option words=()
  for place in model.mixer model.encoder.mixer model.cross_mixer; do
    words+=(--set "$place.kind=$1")
    for option in "${@:2}"; do words+=(--set "$place.$option"); done
  done
  run multi30k_short.yaml "${words[@]}" --set "train.seed=$seed"
}

try() { # CONFIG [--set key=value]... -- mixer [option=value]...
  local config=$1 words=() option
  shift
  while [[ $1 != -- ]]; do words+=("$1") && shift; done
  words+=(--set "model.mixer.kind=$2")
  for option in "${@:3}"; do words+=(--set "model.mixer.$option"); done
  run "$config" "${words[@]}" --set "train.seed=$seed"
}

# Every form, of the options that the task has for all of them.
try_forms() { # CONFIG [--set key=value]... -- [option=value]...
  local arguments=("$@") before=() mixer
  while [[ ${arguments[0]} != -- ]]; do before+=("${arguments[0]}") && arguments=("${arguments[@]:1}"); done
  local options=("${arguments[@]:1}")
  try "${before[@]}" -- scaled_dot_product "${options[@]}"
  try "${before[@]}" -- scaled_dot_product "${options[@]}" qk_norm=true
  for mixer in metric quadratic; do
    try "${before[@]}" -- "$mixer" "${options[@]}"
    try "${before[@]}" -- "$mixer" "${options[@]}" qk_norm=true
    try "${before[@]}" -- "$mixer" "${options[@]}" values=own
    try "${before[@]}" -- "$mixer" "${options[@]}" values=own qk_norm=true
  done
  try "${before[@]}" -- metric "${options[@]}" constraint=diagonal values=own qk_norm=true
}

for seed in $SEEDS; do
  try_forms imdb_base.yaml --set model.width=64 --set model.dropout=0 --set model.embedding.dropout=0.3 --set train.learning_rate=2e-3 \
    -- score_std=0.05
  translate scaled_dot_product
  translate scaled_dot_product qk_norm=true
  translate metric values=own qk_norm=true
  translate quadratic values=own qk_norm=true
  translate metric constraint=diagonal values=own qk_norm=true
  try_forms sorter_hard_base.yaml --
done
finish
