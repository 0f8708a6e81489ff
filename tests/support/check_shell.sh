#!/usr/bin/env bash
# Checks that every script parses, and runs shellcheck if it is installed.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.."
for script in scripts/*.sh scripts/lib/*.sh experiments/*.sh experiments/lib/*.sh tests/support/*.sh; do
  bash -n "$script"
done
if command -v shellcheck >/dev/null; then
  shellcheck -x scripts/*.sh experiments/*.sh tests/support/*.sh
else
  echo "skipped: shellcheck is not installed"
fi
