#!/usr/bin/env bash
# Lines of letters that stand twice, further apart than a segment goes: does memory carry them over, and with which positions?
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

mkdir -p "$RUNS"
[[ -f $RUNS/repeats.txt ]] || "$experiments/write_repeats.py" "$RUNS/repeats.txt"
cd "$RUNS"  # configs name the text by its name alone, so that the results do not depend on where it lies
for seed in $SEEDS; do
  for memory in 0 64; do
    for positions in learned rotary transformer_xl; do
      run "$root/configs/xl_repeats.yaml" --set data.path=repeats.txt --set "model.memory=$memory" \
        --set "model.positions=$positions" --set "train.seed=$seed"
    done
  done
done
finish
