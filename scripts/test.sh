#!/usr/bin/env bash
# Sets up and builds if needed, then runs the tests. Arguments go to ctest:
#   scripts/test.sh                 everything
#   scripts/test.sh -L attention    the tests with a label (one per folder of src, and python, structure, fuzz)
#   scripts/test.sh -R resume       the tests whose name matches
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/build.sh
source "$root/scripts/lib/build.sh"
ensure_set_up_for tests
ensure_built all
exec ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
