#!/usr/bin/env bash
# Checks that all C++ is formatted by clang-format. Versions format differently, so it must be the one of Debian 12.
#   check_format.sh [FILE...]
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.."
expected=14
program=$(command -v "clang-format-$expected" || command -v clang-format || true)
if [[ -z $program ]]; then
  echo "clang-format is missing: run scripts/setup.sh, or install clang-format $expected" >&2
  exit 1
fi
version=$("$program" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
if [[ $version != "$expected" ]]; then
  echo "clang-format $expected is needed, $program is version $version: install clang-format-$expected" >&2
  exit 1
fi
if (($#)); then
  "$program" --dry-run --Werror "$@"
else
  find scripts src tests -regex '.*\.\(cpp\|h\|cu\|c\|js\)' -print0 | xargs -0 "$program" --dry-run --Werror
fi
