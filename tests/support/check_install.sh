#!/usr/bin/env bash
# Installs into an empty folder and uses the result from another one: the program runs, has its configs and its libraries of
# LibTorch, and the links of its documents are valid.
#   check_install.sh CMAKE BUILD_FOLDER
set -euo pipefail
links=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/check_links.py
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

"$links" "$prefix/share/doc" || fail "see above: links of the installed documents"
for file in bash-completion/completions/metaformer zsh/site-functions/_metaformer \
  fish/vendor_completions.d/metaformer.fish man/man1/metaformer.1 metaformer/configs/metaformer.schema.json; do
  [[ -s $prefix/share/$file ]] || fail "share/$file is missing or empty"
done
for text in torch/LICENSE torch/NOTICE; do
  [[ -n ${LIBTORCH:-} ]] ||  # an unpacked LibTorch brings no licence texts
    compgen -G "$prefix/share/doc/*/licenses/$text" >/dev/null || fail "the licence text $text is missing"
done
