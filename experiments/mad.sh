#!/usr/bin/env bash
# MAD: first the settings, then three seeds with the best of them. A smaller study, for two cores and some hours:
#
#   STEPS=1500 ROWS=32 RATES="5e-4 2e-3" DECAYS=0.1 JOBS=2 experiments/mad.sh
set -euo pipefail
folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
"$folder/mad_draws.sh"
"$folder/mad_tuned.sh"
