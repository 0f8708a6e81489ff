#!/usr/bin/env bash
# Fuzzes the readers of untrusted files with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   scripts/fuzz.sh [SECONDS] [TARGET ...]      default: 60 seconds of each target
#
# Needs clang++ and the packages of scripts/setup.sh. Findings are written into build/fuzz/found/TARGET.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"

seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || die 2 "usage: scripts/fuzz.sh [SECONDS] [TARGET ...]"
shift || true
known=()
for source in "$root"/tests/fuzz/fuzz_*.cpp; do
  name=$(basename -- "$source" .cpp)
  known+=("${name#fuzz_}")
done
targets=("$@")
((${#targets[@]})) || targets=("${known[@]}")
for target in "${targets[@]}"; do
  [[ " ${known[*]} " == *" $target "* ]] || die 2 "unknown target '$target'; expected ${known[*]}"
done
command -v clang++ >/dev/null || die 2 "clang++ is needed; on Debian: sudo apt-get install -y clang libomp-dev"

say "building ${targets[*]}"
cd "$root"
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"
for target in "${targets[@]}"; do
  found=$root/build/fuzz/found/$target
  mkdir -p "$found/corpus"
  say "fuzzing $target for $seconds s"
  (cd "$found" && ASAN_OPTIONS=allocator_may_return_null=1 "$root/build/fuzz/tests/fuzz_$target" -max_total_time="$seconds" \
    -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 corpus "$root/tests/fuzz/seeds/$target") ||
    die 1 "$target: found an error; see $found"
done
say "no findings"
