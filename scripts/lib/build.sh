# Brings set-up and build up to date; silent when nothing is to do. To be sourced after common.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of common.sh

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
  # Afresh: what an earlier configuration found may have moved (another LIBTORCH).
  say "configuring the build"
  (cd "$root" && cmake --fresh --preset release "-DMETAFORMER_CUDA=$cuda") >"$build.log" 2>&1 || {
    cat "$build.log" >&2
    die 1 "the build could not be configured; see above"
  }
  touch "$configured_stamp"
}

# Ninja's output without what it says when nothing is to do; the first line of real work is announced.
show_real_work() {
  local line announced=no
  while IFS= read -r line; do
    case $line in
      "ninja: Entering directory"* | "ninja: no work to do."* | *"Re-checking globbed directories"*) continue ;;
    esac
    [[ $announced == yes ]] || say "building (several minutes the first time)"
    announced=yes
    printf '%s\n' "$line"
  done
}

ensure_built() { # targets...
  mkdir -p "$build"
  exec {build_lock}>"$build/.lock"
  flock -n "$build_lock" || { say "another build is running; waiting for it"; flock "$build_lock"; }
  if [[ ! -f $build/build.ninja || $setup_stamp -nt $configured_stamp ]]; then configure; fi
  local status
  ninja -C "$build" -j "$(build_jobs)" "$@" 2>&1 | show_real_work >&2 && status=0 || status=$?
  ((status == 0)) || die 1 "the build failed; see above"
  exec {build_lock}>&-
}
