#!/usr/bin/env bash
# Sets up and builds if needed, then becomes metaformer with the arguments given. Works from any folder.
#   scripts/run.sh train --config shakespeare_metric.yaml
set -euo pipefail
trap '' USR1  # asks a training to save; before there is one it must not end this
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/build.sh
source "$root/scripts/lib/build.sh"
ensure_set_up_for running
ensure_built metaformer
exec "$build/metaformer" "$@"
