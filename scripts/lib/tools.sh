# Tools that have a Python environment of their own. To be sourced after environment.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154  # environment.sh sets root, deps and python

# install_tools NAME: the packages of scripts/requirements/NAME.txt in .deps/NAME, unless they are there.
install_tools() {
  local requirements=$root/scripts/requirements/$1.txt tools=$deps/$1 interpreter=python3
  if cmp -s "$requirements" "$tools/requirements.txt"; then return; fi
  [[ ! -x $python ]] || interpreter=$python
  say "installing the tools of scripts/requirements/$1.txt into ${tools#"$root"/}"
  rm -rf "$tools"
  "$interpreter" -m venv "$tools" || die 1 "could not make a Python environment in $tools; on Debian: apt-get install python3-venv"
  "$tools/bin/pip" install --disable-pip-version-check --quiet -r "$requirements" >&2 || die 1 "pip could not install $requirements"
  cp "$requirements" "$tools/requirements.txt"
}
