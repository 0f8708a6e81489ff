#!/usr/bin/env bash
# Packs what scripts/gpu_check.sh runs, for a GPU machine that cannot build it: executables, and the shared libraries they need
# besides LibTorch, CUDA and the C library.
#
#   scripts/gpu_bundle.sh DIR          after scripts/test.sh, on a machine with nvcc
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"

(($# == 1)) || die 2 "usage: scripts/gpu_bundle.sh DIR"
folder=$1
build=$root/build/release
[[ -f $build/build.ninja ]] || die 2 "build first: scripts/test.sh"
cmake --build "$build" --target metaformer test_kernels_cuda wrapper_probes_cuda wrapper_probes ||
  die 1 "cannot build the GPU tests; they need nvcc"
mkdir -p "$folder/lib"
cp "$build/libmetaformer_cuda_graph.so" "$folder/"
strip "$folder/libmetaformer_cuda_graph.so"
programs=("$build/metaformer" "$build/tests/wrapper_probes" "$build/tests/cuda/device/test_kernels_cuda"
  "$build/tests/cuda/device/wrapper_probes_cuda")
for program in "${programs[@]}"; do
  cp "$program" "$folder/"
  strip "$folder/$(basename "$program")"
  ldd "$program" | awk '$3 ~ /^\// {print $3}' |
    grep -Ev '/(libtorch|libc10|libcud|libcupti|libc\.|libm\.|libdl|librt|libpthread|libgomp|ld-linux)' |
    while read -r library; do cp -L "$library" "$folder/lib/"; done
done
say "$(du -sm "$folder" | cut -f1) MB in $folder; there: scripts/gpu_check.sh --binaries DIR"
