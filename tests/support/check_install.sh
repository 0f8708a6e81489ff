#!/usr/bin/env bash
# Installs into an empty folder and uses the result from another one: the program runs, brings its configs and what it needs of
# LibTorch, and the links of its documents lead somewhere.
#   check_install.sh CMAKE BUILD_FOLDER
set -euo pipefail
prefix=$(mktemp -d "${TMPDIR:-/tmp}/metaformer install XXXXXX")
trap 'rm -rf "$prefix"' EXIT
fail() {
  echo "$*" >&2
  exit 1
}

"$1" --install "$2" --prefix "$prefix" >/dev/null
cd /
"$prefix/bin/metaformer" config check --config shakespeare_metric.yaml | grep -F "$prefix/share/metaformer/configs/shakespeare_metric.yaml"
"$prefix/bin/metaformer" info >/dev/null

outside=$(ldd "$prefix/bin/metaformer" | grep -E '^\s*lib(torch|c10|cupti|cudart|gomp)' | grep -vF "$prefix/" || true)
[[ -z $outside ]] || fail "libraries of LibTorch from outside the installation: $outside"

find "$prefix/share/doc" -name '*.md' | while read -r document; do
  { grep -oE '\]\([^)# ]+' "$document" || true; } | cut -c3- | { grep -v '^https\?:' || true; } | while read -r link; do
    [[ -e $(dirname "$document")/$link ]] || fail "${document#"$prefix/"}: the link $link leads nowhere"
  done
done
