#!/usr/bin/env bash
# The dry run of a bundle from an empty folder: it finds the bundle's configs and corpus, without the environment's variables.
#   check_gpu_bundle.sh BUILD_FOLDER PYTHON
set -euo pipefail
scripts=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../../scripts
bundle=$(mktemp -d "${TMPDIR:-/tmp}/metaformer bundle XXXXXX")
trap 'rm -rf "$bundle"' EXIT
fail() {
  echo "$*" >&2
  exit 1
}

"$scripts/gpu_bundle.sh" --without-cuda --built "$1" "$bundle/unpacked"
system=$(find "$bundle/unpacked/lib" -regextype egrep -regex '.*/lib(c|m|dl|rt|pthread|resolv|torch|torch_cpu|c10)[.-].*')
[[ -z $system ]] || fail "libraries that a bundle must not bring: $system"
mkdir "$bundle/empty"
cd "$bundle/empty"
said=$(env -i PATH=/usr/bin:/bin PYTHON="$2" ../unpacked/scripts/gpu_check.sh --dry-run 2>&1) || fail "the dry run failed: $said"
grep -qF "$bundle/unpacked/share/metaformer/configs/shakespeare_gpu_metric_published.yaml" <<<"$said" || fail "another config: $said"
[[ -z $(ls) ]] || fail "the dry run left files: $(ls)"
[[ $said == *'0 checks failed'* ]] || fail "the dry run says of no failure: $said"
# The tests that compute-sanitizer runs must exist.
grep -oP 'sanitize \w+ "\K[^"]+' "$scripts/gpu_check.sh" | while IFS= read -r name; do
  name="TEST_CASE(\"$name\""
  grep -qF "${name%\*\"}" "$scripts"/../tests/cuda/*.cpp || fail "no test of the kernels is named '$name'"
done
status=0
env -i PATH=/usr/bin:/bin PYTHON="$2" ../unpacked/scripts/gpu_check.sh --output out.md 2>error || status=$?
if nvidia-smi >/dev/null 2>&1; then
  echo "skipped: the refusal without a GPU, because there is one"
else
  [[ $status == 2 && $(<error) == *'no GPU here'* ]] || fail "without a GPU: exit code $status, $(<error)"
fi
