#!/usr/bin/env bash
# Makes packages of the release build: a Python wheel and a tarball that runs from any folder. Compiles nothing.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/build.sh
source "$root/scripts/lib/build.sh"
# shellcheck source=scripts/lib/tools.sh
source "$root/scripts/lib/tools.sh"

usage() {
  cat <<'HELP'
usage: scripts/package.sh [wheel] [tarball] [--cpu | --cuda] [--check] [--output DIR]

  wheel     metaformer-VERSION-py3-none-manylinux_X_Y_x86_64.whl: LibTorch comes from the package torch, which it requires
  tarball   metaformer-VERSION-linux-x86_64.tar.xz: with LibTorch's libraries for the CPU
            default: both. With CUDA code in the build, VERSION of the wheel ends in +cuda, and the tarball's name in -cuda

  --cpu, --cuda  stops unless the build is for the CPU alone, or has CUDA code
  --check        also installs each package in an empty folder, and trains, evaluates and samples there
  --output DIR   default: build/packages

The build is that of scripts/run.sh. Tools are installed into .deps/package.

exit codes: 0 ready, 1 a step failed, 2 wrong usage, no build, or not the requested build
HELP
}

kinds=() wanted='' checks=no output=$root/build/packages
while (($#)); do
  case $1 in
    wheel | tarball) kinds+=("$1") ;;
    --cpu | --cuda) wanted=${1#--} ;;
    --check) checks=yes ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die 2 "unknown argument '$1'" ;;
  esac
  shift
done
((${#kinds[@]})) || kinds=(wheel tarball)

stage=''
trap '[[ -z $stage ]] || rm -rf "$stage"' EXIT
tools=$deps/package

# value KEY...: a value of `metaformer info --json`.
value() {
  python3 -c 'import functools, json, sys
found = functools.reduce(lambda part, key: part[key], sys.argv[2:], json.loads(sys.argv[1]))
print(found if isinstance(found, str) else json.dumps(found))' "$info" "$@"
}

describe_build() {
  [[ -x $build/metaformer ]] || die 2 "no build in ${build#"$root"/}: scripts/run.sh --version makes one"
  program_is_current || say "warning: ${build#"$root"/}/metaformer is older than its sources; scripts/run.sh --version builds them"
  [[ $(uname -m) == x86_64 ]] || die 2 "packages are made on x86_64, and this machine is $(uname -m)"
  info=$("$build/metaformer" info --json) || die 1 "$build/metaformer info --json failed; see above"
  version=$(value version) torch=$(value torch) variant=cpu
  [[ $(value cuda compiled) != true ]] || variant=cuda
  [[ $wanted != cpu || $variant == cpu ]] ||
    die 2 "--cpu: the build has CUDA code; for a build without: scripts/setup.sh --cpu && scripts/run.sh --version"
  [[ $wanted != cuda || $variant == cuda ]] ||
    die 2 "--cuda: the build has no CUDA code; on a machine with nvcc: scripts/setup.sh --cuda && scripts/run.sh --version"
}

# Not in a package: the parts of the C library, which work with no other C library, and the run-time libraries of GCC, which may be
# too old for the system's other libraries.
of_the_system='ld-linux.*|lib(c|m|dl|rt|pthread|resolv|nsl|util|anl|mvec|BrokenLocale|thread_db|nss_.*|crypt|stdc\+\+|gcc_s)'
of_torch='lib(torch|c10|cud|cupti|cublas|nv|nccl|gomp).*'

# Lines "name path" of the libraries that a file of the build needs, without those of the system, LibTorch and CUDA.
needed_libraries() { # file
  ldd "$1" | awk '$3 ~ /^\// {print $1, $3}' | grep -Ev "^($of_the_system|$of_torch)[.-]" || true
}

licence_texts() { # folder paths-of-libraries...
  local folder=$1 library package
  shift
  # Those that THIRD_PARTY_LICENSES.md names, tests and scripts excepted, and those of the libraries.
  sed '/^## Used by tests/,$d' "$root/THIRD_PARTY_LICENSES.md" | grep -oP '/usr/share/doc/\K[^/]+(?=/copyright)' >"$stage/packages"
  for library in "$@"; do
    library=$(readlink -f "$library")
    [[ $library != */pyarrow/* ]] || continue
    package=$(dpkg -S "$library" 2>/dev/null || dpkg -S "${library#/usr}" 2>/dev/null) ||
      die 1 "$library is of no Debian package, so its licence text is not known; make packages on Debian 12"
    echo "${package%%:*}" >>"$stage/packages"
  done
  sort -u "$stage/packages" | while read -r package; do
    if [[ -f /usr/share/doc/$package/copyright ]]; then
      install -D -m 644 "/usr/share/doc/$package/copyright" "$folder/$package/copyright"
    fi
  done
  for text in "$venv"/lib/python3*/site-packages/pyarrow-*.dist-info/licenses/*.txt; do
    if [[ -f $text ]]; then install -D -m 644 "$text" "$folder/pyarrow/$(basename "$text")"; fi
  done
}

# The installed program, which both packages start from.
install_program() {
  program=$stage/program
  cmake --install "$build" --prefix "$program" --strip >"$stage/install.log" 2>&1 || {
    cat "$stage/install.log" >&2
    die 1 "the build cannot be installed; see above"
  }
  modules=$program/lib/metaformer
  mapfile -t libraries < <(for file in metaformer libmetaformer_parquet.so; do
    if [[ -f $build/$file ]]; then needed_libraries "$build/$file"; fi
  done | sort -u)
  licence_texts "$program/share/doc/metaformer/licenses" "${libraries[@]#* }"
}

set_rpath() { "$tools/bin/patchelf" --set-rpath "$1" "${@:2}" || die 1 "patchelf failed for ${*:2}"; }

make_tarball() {
  local name=metaformer-$version-linux-x86_64 library
  [[ $variant == cpu ]] || name+=-cuda
  local folder=$stage/$name
  cp -r "$program" "$folder"
  set_rpath "\$ORIGIN/../lib/metaformer" "$folder/bin/metaformer"
  for library in "${libraries[@]}"; do
    install -m 755 "${library#* }" "$folder/lib/metaformer/${library%% *}"
    set_rpath "\$ORIGIN" "$folder/lib/metaformer/${library%% *}"
  done
  set_rpath "\$ORIGIN" "$folder"/lib/metaformer/libmetaformer_*.so
  say "compressing $(du -sm "$folder" | cut -f1) MB"
  tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" |
    xz -6 -T0 >"$stage/$name.tar.xz"
  mv "$stage/$name.tar.xz" "$output/"
  packages+=("$output/$name.tar.xz")
}

# "26.0.*" for libparquet.so.2600.
arrow_version() {
  local number
  number=$(readelf -d "$modules/libmetaformer_parquet.so" | grep -oP 'libparquet\.so\.\K[0-9]+')
  echo "$((number / 100)).$((number % 100)).*"
}

# The wheel's files of the program. Installed, they are beside the packages torch, nvidia and pyarrow.
wheel_program() { # folder
  local package=$1/metaformer site="\$ORIGIN/../.." module
  mkdir -p "$package/bin" "$package/lib/metaformer" "$package/share"
  cp "$program/bin/metaformer" "$package/bin/"
  set_rpath "$site/torch/lib:$site/nvidia/cu13/lib" "$package/bin/metaformer"
  for module in "$modules"/libmetaformer_*.so; do
    [[ -f $module ]] || continue
    cp "$module" "$package/lib/metaformer/"
    set_rpath "$site/../torch/lib:$site/../nvidia/cu13/lib:$site/../pyarrow" "$package/lib/metaformer/$(basename "$module")"
  done
  cp -r "$program"/share/{metaformer,bash-completion,zsh,fish} "$package/share/"
  sed "s/@TORCH@/$torch/" "$root/scripts/wheel/__init__.py" >"$package/__init__.py"
  cp "$root/scripts/wheel/__main__.py" "$package/"
}

print_metadata() { # version folder-of-licences
  printf '%s\n' "Metadata-Version: 2.4" "Name: metaformer" "Version: $1" \
    "Summary: Token-mixer ablations of transformers, natively with LibTorch" "License-Expression: MIT" "Requires-Python: >=3.10" \
    "Requires-Dist: torch==$torch"
  (cd "$2" && find . -type f -printf 'License-File: %P\n' | sort)
  if [[ $variant == cuda ]]; then echo "Requires-Dist: nvidia-cuda-runtime==13.*"; fi
  if [[ -f $modules/libmetaformer_parquet.so ]]; then
    printf '%s\n' "Provides-Extra: parquet" "Requires-Dist: pyarrow==$(arrow_version); extra == \"parquet\""
  fi
  printf '%s\n\n' "Description-Content-Type: text/markdown"
  cat "$root/scripts/wheel/DESCRIPTION.md"
}

wheel_metadata() { # folder version
  local described=$1/metaformer-$2.dist-info
  mkdir -p "$described/licenses"
  cp -r "$root"/{LICENSE,THIRD_PARTY_LICENSES.md} "$program/share/doc/metaformer/licenses/." "$described/licenses/"
  rm -rf "$described"/licenses/{torch,nvidia_*,pyarrow}  # those packages bring them
  print_metadata "$2" "$described/licenses" >"$described/METADATA"
  printf '%s\n' "Wheel-Version: 1.0" "Generator: scripts/package.sh" "Root-Is-Purelib: false" "Tag: py3-none-linux_x86_64" \
    >"$described/WHEEL"
  printf '%s\n' "[console_scripts]" "metaformer = metaformer:main" >"$described/entry_points.txt"
}

make_wheel() {
  local folder=$stage/wheel full=$version library made
  [[ $variant == cpu ]] || full+=+cuda
  wheel_program "$folder"
  wheel_metadata "$folder" "$full"
  mkdir "$stage/packed" "$stage/repaired"
  "$tools/bin/wheel" pack --dest-dir "$stage/packed" "$folder" >&2 || die 1 "the wheel cannot be written; see above"
  local excluded=()
  for library in torch c10 cudart cupti gomp nccl parquet arrow; do excluded+=(--exclude "lib$library*"); done
  PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair "${excluded[@]}" --wheel-dir "$stage/repaired" "$stage"/packed/*.whl \
    >"$stage/auditwheel.log" 2>&1 || {
    cat "$stage/auditwheel.log" >&2
    die 1 "auditwheel failed; see above"
  }
  made=$(echo "$stage"/repaired/*.whl)
  mv "$made" "$output/"
  packages+=("$output/$(basename "$made")")
}

describe_build
install_tools package
mkdir -p "$output"
output=$(cd "$output" && pwd -P)
stage=$(mktemp -d "$output/.stage.XXXXXX")
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
packages=()
install_program
for kind in "${kinds[@]}"; do "make_$kind"; done
if [[ $checks == yes ]]; then
  "$tools/bin/python" "$root/tests/python/packages.py" "${packages[@]}" >&2 || die 1 "a package does not work; see above"
fi
du -BMB "${packages[@]}" | while read -r size package; do say "${size%MB} MB: ${package#"$root"/}"; done
printf '%s\n' "${packages[@]}"
