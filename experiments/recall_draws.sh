#!/usr/bin/env bash
# Multi-query associative recall (Arora et al. 2024) with 64 tokens and 4 pairs: every mixer in both widths with the four learning rates
# of the published code, one seed each; the two attention mixers with and without qk_norm. At width 64 also the mixers of
# experiments/recall_language_table.py. experiments/recall_tuned.sh takes the best rate of each.
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/recall_cells.sh
source "$experiments/lib/recall_cells.sh"

run_rates() { # cell mixer [qk_norm]
  local rate
  set_cell "$@"
  for rate in 1e-4 4.64e-4 2.15e-3 1e-2; do run recall_base.yaml "${sets[@]}" --set "train.learning_rate=$rate"; done
}
for_each_mixer run_rates 64:4
for mixer in $more_mixers; do run_rates 64:4:64 "$mixer"; done
for width in 64 128; do
  run_rates "64:4:$width" scaled_dot_product true
  run_rates "64:4:$width" metric false
done
finish
