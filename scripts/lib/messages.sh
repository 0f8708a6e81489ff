# Messages on standard error. To be sourced; also a part of the output of `metaformer sweep-functions`.
# shellcheck shell=bash

say() { printf 'metaformer: %s\n' "$*" >&2; }
die() {
  local code=$1
  shift
  say "error: $*"
  exit "$code"
}
