#!/usr/bin/env bash
# Loss over compute: first learning rates at two widths, then models of six sizes.
set -euo pipefail
folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
"$folder/scaling_draws.sh"
"$folder/scaling_tuned.sh"
