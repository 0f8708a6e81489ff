#!/usr/bin/env bash
# Shakespeare by characters with Muon at three rates: scaled dot product beside the mixers of experiments/shakespeare_field.sh that have
# the lowest losses with AdamW, at equal parameters.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

for seed in $SEEDS; do
  for rate in 2.5e-3 5e-3 1e-2; do
    task=(shakespeare_base.yaml --set train.optimizer.kind=muon --set "train.learning_rate=$rate")
    run_with scaled_dot_product qk_norm=true
    for mixer in mamba2 gated_delta_net short_convolution; do run_with "$mixer"; done
  done
done
finish --by train.learning_rate
