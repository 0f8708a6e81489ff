#!/usr/bin/env bash
# Fuzzes the readers of untrusted files with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   scripts/fuzz.sh [SECONDS] [TARGET ...]      default: 60 seconds of each target
#
# Needs clang++ and a finished build (scripts/test.sh). What was found lies in build/fuzz/TARGET.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"

seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || die 2 "usage: scripts/fuzz.sh [SECONDS] [TARGET ...]"
shift || true
targets=("$@")
((${#targets[@]})) || targets=(config tokenizer table json_lines safetensors meta)
command -v clang++ >/dev/null || die 2 "clang++ is needed; on Debian: sudo apt-get install -y clang"
build_info=$root/build/release/src/build_info.cpp
[[ -f $build_info ]] || die 2 "build first: scripts/test.sh"

flags=(-std=c++20 -g -O1 "-fsanitize=fuzzer,address,undefined" -fno-sanitize-recover=undefined
  -I"$root/src" -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL)
sources=("$root"/src/core/*.cpp "$build_info")
libraries=(-lspdlog -lfmt -lyaml-cpp)
data_sources=("$root"/src/data/{delimited_rows,tokenizer,byte_tokenizer,character_tokenizer,word_tokenizer,number_tokenizer}.cpp
  "$root"/src/data/{sentencepiece_tokenizer,sentencepiece_training,base64,digest}.cpp)

build() {
  local target=$1 more=()
  case $target in
    config) ;;
    tokenizer | table) more=("${data_sources[@]}" -lcsv -lsentencepiece_train -lsentencepiece -lcrypto) ;;
    json_lines) more=("$root"/src/data/{json_lines,table_builder}.cpp) ;;
    safetensors)
      local torch
      torch=$(compgen -G "$venv/lib/python3*/site-packages/torch")
      more=("$root/src/run/safetensors.cpp" -idirafter "$torch/include" -idirafter "$torch/include/torch/csrc/api/include"
        -L"$torch/lib" "-Wl,-rpath,$torch/lib" "-Wl,--allow-shlib-undefined" -ltorch_cpu -lc10) ;;
    meta) more=("$root"/src/run/checkpoint_meta.cpp "$root/src/base/digest.cpp" -lcrypto) ;;
    *) die 2 "unknown target '$target'; there are config, tokenizer, table, json_lines, safetensors and meta" ;;
  esac
  say "building fuzz target $target"
  clang++ "${flags[@]}" "$root/tests/fuzz/fuzz_$target.cpp" "${sources[@]}" "${more[@]}" "${libraries[@]}" \
    -o "$root/build/fuzz/$target.run"
}

for target in "${targets[@]}"; do
  mkdir -p "$root/build/fuzz/$target/corpus"
  build "$target"
  say "fuzzing $target for $seconds s"
  (cd "$root/build/fuzz/$target" && ASAN_OPTIONS=allocator_may_return_null=1 "../$target.run" -max_total_time="$seconds" \
    -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 corpus "$root/tests/fuzz/seeds/$target") ||
    die 1 "$target: found something; see build/fuzz/$target"
done
say "no findings"
