# Brings set-up and build up to date; prints nothing if they are. To be sourced after environment.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of environment.sh

configured_stamp="$build/.configured"

ensure_set_up_for() { # running | tests
  local options=()
  [[ $1 != tests ]] || options=(--tests)
  if setup_is_current; then
    if [[ $1 != tests ]] || has_test_packages; then return; fi
  fi
  "$root/scripts/setup.sh" "${options[@]}"
}

configure() {
  local cuda=AUTO
  [[ $(installed_variant) == cpu ]] && cuda=OFF
  # --fresh, because the libraries of an earlier configuration may have moved (another LIBTORCH).
  say "configuring the build"
  (cd "$root" && cmake --fresh --preset release "-DMETAFORMER_CUDA=$cuda") >"$build.log" 2>&1 || {
    cat "$build.log" >&2
    die 1 "the build could not be configured; see above"
  }
  touch "$configured_stamp"
}

# Duration of a first build: processor minutes measured on an AMD EPYC (Zen 5), and 1.7 times as many on a Xeon at 2.5 GHz, divided by the
# number of compilers at once.
describe_first_build() { # compilers-at-once targets...
  local jobs=$1 processor_minutes=7 most
  shift
  [[ $* == metaformer ]] || processor_minutes=20
  most=$((processor_minutes * 17 / 10))
  say "building; the first time this takes $(((processor_minutes + jobs - 1) / jobs)) to $(((most + jobs - 1) / jobs)) minutes with $jobs" \
    "compilers at once"
}

# Ninja's output without its messages about an up-to-date build. Prints the announcement before the first line of real work.
show_real_work() { # compilers-at-once targets...
  local line announced=no
  while IFS= read -r line; do
    case $line in
      "ninja: Entering directory"* | "ninja: no work to do."* | *"Re-checking globbed directories"*) continue ;;
    esac
    [[ $announced == yes ]] || describe_first_build "$@"
    announced=yes
    printf '%s\n' "$line"
  done
}

# Whether the program is newer than all its inputs, the commit in its version included.
program_is_current() {
  local program=$build/metaformer head_log input
  [[ -x $program ]] || return 1
  head_log=$(git -C "$root" rev-parse --path-format=absolute --git-path logs/HEAD 2>/dev/null) || head_log=
  for input in "$setup_stamp" "$configured_stamp" "$head_log" "$root"/{scripts/lib/messages,experiments/lib/sweep}.sh; do
    if [[ -n $input && $input -nt $program ]]; then return 1; fi
  done
  [[ -z $(find "$root/src" "$root/cmake" "$root/CMakeLists.txt" "$root/CMakePresets.json" -newer "$program" -print -quit) ]]
}

ensure_built() { # targets...
  mkdir -p "$build"
  exec {build_lock}>"$build/.lock"
  if ! flock -n "$build_lock"; then
    # Another build, for example of the tests, is running: a program that is up to date need not wait for it.
    if [[ $* == metaformer ]] && program_is_current; then
      exec {build_lock}>&-
      return
    fi
    say "another build is running; waiting for it"
    flock "$build_lock"
  fi
  if [[ ! -f $build/build.ninja || $setup_stamp -nt $configured_stamp ]]; then configure; fi
  local status jobs
  jobs=$(build_jobs)
  ninja -C "$build" -j "$jobs" "$@" 2>&1 | show_real_work "$jobs" "$@" >&2 && status=0 || status=$?
  ((status == 0)) || die 1 "the build failed; see above"
  exec {build_lock}>&-
}
