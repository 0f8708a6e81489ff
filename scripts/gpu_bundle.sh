#!/usr/bin/env bash
# Bundles the files of scripts/gpu_check.sh, for a GPU machine that cannot build and has no network: executables, their shared
# libraries except LibTorch, CUDA and the C library, configs, the corpus, and the script itself.
#
#   scripts/gpu_bundle.sh DIR                    after scripts/setup.sh --cuda and a build, on a machine with nvcc
#   scripts/gpu_bundle.sh --without-cuda DIR     the files of a dry run; needs no nvcc
#   --built FOLDER                               takes the programs of this build, without building
#
# On the GPU machine run DIR/scripts/gpu_check.sh, with a Python that has LibTorch's version of torch.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"

with_cuda=true folder='' builds=true
while (($#)); do
  case $1 in
    --without-cuda) with_cuda=false; shift ;;
    --built) build=${2:?--built needs a folder} builds=false; shift 2 ;;
    -*) die 2 "unknown argument $1; see the head of scripts/gpu_bundle.sh" ;;
    *) folder=$1; shift ;;
  esac
done
[[ -n $folder ]] || die 2 "usage: scripts/gpu_bundle.sh DIR"
[[ -f $build/build.ninja ]] || die 2 "build first: scripts/test.sh"
targets=(metaformer wrapper_probes)
programs=("$build/metaformer" "$build/tests/wrapper_probes")
if $with_cuda; then
  targets+=(test_kernels_cuda wrapper_probes_cuda metaformer_cuda_graph metaformer_nccl)
  programs+=("$build/tests/cuda/device/test_kernels_cuda" "$build/tests/cuda/device/wrapper_probes_cuda")
fi
! $builds || cmake --build "$build" --target "${targets[@]}" >&2 ||
  die 1 "cannot build the programs; the CUDA programs need nvcc and scripts/setup.sh --cuda"

mkdir -p "$folder"/{bin,lib,data,share/metaformer,scripts/lib,scripts/peers}
# Parts of the C library's package, which cannot be used with another C library.
of_the_system='ld-linux.*|lib(c|m|dl|rt|pthread|resolv|nsl|util|anl|mvec|BrokenLocale|thread_db|nss_.*|crypt)'
of_torch='lib(torch.*|c10.*|cud.*|cupti.*|cublas.*|nv.*|gomp.*)'
for program in "${programs[@]}"; do
  strip -o "$folder/bin/$(basename "$program")" "$program"
  ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -Ev "/($of_the_system|$of_torch)[.-]" |
    while read -r library; do cp -L "$library" "$folder/lib/"; done
done
if $with_cuda; then
  mkdir -p "$folder/lib/metaformer"
  for library in cuda_graph nccl; do
    strip -o "$folder/lib/metaformer/libmetaformer_$library.so" "$build/libmetaformer_$library.so"
  done
fi
cp -r "$root/configs" "$folder/share/metaformer/"
cp "$("$build/metaformer" data fetch tinyshakespeare)" "$folder/data/" || die 1 "no Shakespeare corpus"
cp "$root"/scripts/{gpu_check.sh,gpu_results.py} "$folder/scripts/"
cp "$root"/scripts/lib/{environment,messages}.sh "$folder/scripts/lib/"
cp "$root"/scripts/peers/{pytorch_step,gpu_probes}.py "$folder/scripts/peers/"
say "$(du -sm "$folder" | cut -f1) MB in $folder; run scripts/gpu_check.sh in it"
