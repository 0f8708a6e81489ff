#!/usr/bin/env bash
# MAD: first the settings, then three seeds with the best of them. STEPS=1000 is what two cores can do.
set -euo pipefail
folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
"$folder/mad_draws.sh"
"$folder/mad_tuned.sh"
