#!/usr/bin/env bash
# Installs the requirements of metaformer: system packages (apt) and LibTorch (a wheel in a venv).
# May be run again: it installs only missing parts, and continues an interrupted installation.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/tools.sh
source "$root/scripts/lib/tools.sh"

usage() {
  cat <<'HELP'
usage: scripts/setup.sh [--cpu | --cuda] [--tests]

  --cpu     LibTorch for the CPU alone (1.3 GB), and a build without CUDA code
  --cuda    LibTorch with its CUDA libraries (4.6 GB), and, if nvcc is installed, a build with CUDA code; needs no GPU
            default: the previous choice, else --cuda on a machine with an NVIDIA GPU, else --cpu
  --tests   also the Python packages that the tests compare against (4.6 GB in either case), and the tools of scripts/docs.sh

  LIBTORCH=/path/to/libtorch   use this unpacked LibTorch instead of a download

exit codes: 0 ready, 1 an installation step failed, 2 wrong usage, or missing packages that only root can install
HELP
}

variant=
tests=no
while (($#)); do
  case $1 in
    --cpu) variant=cpu ;;
    --cuda) variant=cuda ;;
    --tests) tests=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die 2 "unknown argument '$1'" ;;
  esac
  shift
done

has_gpu() { [[ -e /dev/nvidia0 ]] || nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

# The previous choice stays: scripts/test.sh must not change a CPU set-up into a CUDA set-up.
choose_variant() {
  local before
  before=$(installed_variant || true)
  if [[ -n $variant ]]; then return; fi
  if [[ -n $before ]]; then
    variant=$before
  elif has_gpu; then
    variant=cuda
  else
    variant=cpu
  fi
}

system_packages=(build-essential cmake ninja-build ccache git ca-certificates python3 python3-venv
  libyaml-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libutfcpp-dev libcsv-dev libarchive-dev zlib1g-dev libzstd-dev
  libsentencepiece-dev libpcre2-dev libicu-dev liblinear-dev libgloo-dev libcurl4-openssl-dev libssl-dev catch2 libboost-dev libboost-context-dev
  clang-format libmimalloc-dev node-d3 librsvg2-bin)
test_packages=(chromium-headless-shell)

missing_packages() {
  local package
  for package in "${system_packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

install_system_packages() {
  [[ $tests == no ]] || system_packages+=("${test_packages[@]}")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system: install the counterparts of these packages: ${system_packages[*]}"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    say "these packages are missing; install them, then run this again:"
    say "  sudo apt-get install -y ${missing[*]}"
    exit 2
  fi
  say "installing ${#missing[@]} system packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # Finishes an earlier, interrupted apt or dpkg.
  dpkg --configure -a >&2
  apt-get update -qq >&2 || die 1 "apt-get update failed; see above"
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 || die 1 "apt-get install failed; see above"
}

check_disk_space() {
  local need_gb=$1 free_kb
  mkdir -p "$deps"
  free_kb=$(df -Pk "$deps" | awk 'NR == 2 {print $4}')
  ((free_kb >= need_gb * 1000000)) ||
    die 1 "$need_gb GB of disk space are needed under $deps, $((free_kb / 1000000)) GB are free"
}

# Debian marks its Python as externally managed (PEP 668) and may lack ensurepip, so this makes a venv with the first
# interpreter that can.
make_venv() {
  if "$python" -m pip --version >/dev/null 2>&1; then return; fi
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      say "making a Python environment in ${venv#"$root"/} with $("$candidate" --version)"
      rm -rf "$venv"
      "$candidate" -m venv "$venv" || die 1 "could not make a Python environment in $venv"
      return
    fi
  done
  die 2 "no Python >= 3.10 with venv and ensurepip found; on Debian: sudo apt-get install -y python3-venv"
}

pip_install() {
  "$python" -m pip install --disable-pip-version-check --progress-bar off --quiet "$@" >&2 ||
    die 1 "pip could not install: $* (downloads are kept; run this again to continue)"
}

has_libtorch() { compgen -G "$venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so" >/dev/null; }
can_import_torch() { "$python" -c 'import torch' >/dev/null 2>&1; }

install_libtorch() {
  if [[ -n ${LIBTORCH:-} ]]; then
    [[ -f $LIBTORCH/include/torch/csrc/api/include/torch/torch.h ]] ||
      die 2 "LIBTORCH=$LIBTORCH is not a LibTorch: include/torch/csrc/api/include/torch/torch.h is missing"
    say "using the LibTorch in $LIBTORCH"
  elif [[ $variant == cuda ]]; then
    install_python_packages
    return
  elif ! has_libtorch; then
    check_disk_space 4
    make_venv
    say "installing LibTorch for the CPU (1.3 GB)"
    pip_install --no-deps -r "$root/scripts/requirements/libtorch.txt"
  fi
  [[ $tests == no ]] || install_python_packages
}

install_python_packages() {
  make_venv
  if ! can_import_torch; then check_disk_space 12; fi
  say "installing torch with its CUDA libraries and Python packages (4.6 GB)"
  pip_install -r "$root/scripts/requirements/python.txt"
  can_import_torch || die 1 "torch was installed but cannot be imported: $("$python" -c 'import torch' 2>&1 | tail -1)"
  install_tools docs
  tests=yes
}

write_stamp() {
  local temporary="$setup_stamp.$$"
  printf 'variant=%s\ntests=%s\ninputs=%s\n' "$variant" "$tests" "$(setup_inputs)" >"$temporary"
  mv "$temporary" "$setup_stamp"
}

if has_test_packages; then tests=yes; fi
choose_variant
mkdir -p "$deps"
exec {lock}>"$deps/setup.lock"
flock -n "$lock" || { say "another set-up is running; waiting for it"; flock "$lock"; }
say "setting up for ${variant^^}"
install_system_packages
install_libtorch
write_stamp
say "set-up is complete"
