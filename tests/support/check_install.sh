#!/usr/bin/env bash
# Installs into an empty folder and uses the result from another one: the program runs and brings its configs.
#   check_install.sh CMAKE BUILD_FOLDER
set -euo pipefail
prefix=$(mktemp -d "${TMPDIR:-/tmp}/metaformer install XXXXXX")
trap 'rm -rf "$prefix"' EXIT
"$1" --install "$2" --prefix "$prefix" >/dev/null
cd /
"$prefix/bin/metaformer" config check --config shakespeare_metric.yaml | grep -F "$prefix/share/metaformer/configs/shakespeare_metric.yaml"
"$prefix/bin/metaformer" info >/dev/null
