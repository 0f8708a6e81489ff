#!/usr/bin/env bash
# Sets up and builds if needed, then starts metaformer with the given arguments. Works from any folder.
#   scripts/run.sh train --config shakespeare_metric.yaml
set -euo pipefail
trap '' USR1  # makes training save a checkpoint; it must not end this script before training starts
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/build.sh
source "$root/scripts/lib/build.sh"
ensure_set_up_for running
ensure_built metaformer
exec "$build/metaformer" "$@"
