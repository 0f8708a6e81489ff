#!/usr/bin/env bash
# Lines of letters that repeat at a distance beyond the window: tests which positions let a model use its memory.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

text=/tmp/metaformer_repeats.txt  # the same path on every machine: the keys of the results depend on it
[[ -f $text ]] || "$experiments/write_repeats.py" "$text"
for seed in $SEEDS; do
  for memory in 0 64; do
    for positions in learned rotary transformer_xl; do
      run xl_repeats.yaml --set "data.path=$text" --set "model.memory=$memory" \
        --set "model.positions=$positions" --set "train.seed=$seed"
    done
  done
done
finish
