#!/usr/bin/env bash
# Lines of letters that stand twice, further apart than a segment goes: does memory carry them over, and with which positions?
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

text=/tmp/metaformer_repeats.txt  # one place on every machine: the keys of the results depend on it
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
