#!/usr/bin/env bash
# Why metric attention as published fails at the rates from which scaled dot product gains: one change at a time, at four rates.
# The recipe is the one that twelve draws chose for scaled dot product (experiments/shakespeare_draws.sh), in 1,200 steps.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

recipe=(--set train.steps=1200 --set train.schedule.warmup_steps=395 --set model.dropout=0.01424)
decay=0.06804

# A change of the mixer, given as its options, at every rate of $rates.
try() { # mixer [option=value]...
  local mixer=$1 options=() option rate
  shift
  for option in "$@"; do options+=(--set "model.mixer.$option"); done
  for rate in $rates; do
    run shakespeare_base.yaml "${recipe[@]}" --set "train.optimizer.weight_decay=$decay" --set "train.learning_rate=$rate" \
      --set "model.mixer.kind=$mixer" "${options[@]}" --set "train.seed=$seed"
  done
}

try_muon() { # mixer
  local rate
  for rate in $rates; do
    run shakespeare_base.yaml "${recipe[@]}" --set train.optimizer.kind=muon --set "train.optimizer.weight_decay=$decay" \
      --set "train.learning_rate=$rate" --set "model.mixer.kind=$1" --set "train.seed=$seed"
  done
}

for rates in 6.7e-3 1.3e-2 "3.3e-3 1e-3"; do
  for seed in $SEEDS; do
    for mixer in scaled_dot_product quadratic metric; do
      try "$mixer"
      try "$mixer" qk_norm=true
      if [[ $mixer != scaled_dot_product ]]; then
        try "$mixer" values=own
        try "$mixer" values=own qk_norm=true
      fi
      try "$mixer" score_std=0.3
      try "$mixer" score_std=0.05
      try_muon "$mixer"
    done
    for constraint in psd diagonal identity; do try metric "constraint=$constraint"; done
    try metric constraint=diagonal values=own qk_norm=true
    try average_pooling
  done
done
finish
