#!/usr/bin/env bash
# Builds the documentation as a site for any browser: with search, and without a server or a network.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/tools.sh
source "$root/scripts/lib/tools.sh"

usage() {
  cat <<'HELP'
usage: scripts/docs.sh [--output DIR]

  --output DIR   default: build/docs; its former content is removed

Open index.html of the folder. The groups and titles of docs/README.md are the navigation. A link that leads nowhere, or a page that
docs/README.md does not list, is an error. MkDocs is installed into .deps/docs.

exit codes: 0 ready, 1 a step failed, 2 wrong usage
HELP
}

output=$root/build/docs
while (($#)); do
  case $1 in
    --output) (($# > 1)) || die 2 "--output needs a folder"; output=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die 2 "unknown argument '$1'" ;;
  esac
  shift
done

# MkDocs empties the folder.
if [[ -e $output && ! -e $output/search/search_index.js ]] && [[ ! -d $output || -n $(ls -A "$output") ]]; then
  die 2 "--output $output: not an empty folder, and no site of this script; choose another"
fi
mkdir -p "$output"
output=$(cd -- "$output" && pwd -P)
install_tools docs
NO_MKDOCS_2_WARNING=true "$deps/docs/bin/mkdocs" build --strict --config-file "$root/scripts/site/mkdocs.yml" --site-dir "$output" 2>&1 |
  { grep -v '^INFO' >&2 || true; } || die 1 "the site cannot be built; see above"
echo "$output/index.html"
