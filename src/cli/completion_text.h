#pragma once
// The parts of the completion scripts that do not depend on the program's commands. They follow the generated functions
// _metaformer_command, _metaformer_expected and _metaformer_key_values.

namespace metaformer {

// For both shells. The caller has local variables `program`, `line` (the words between the program and the current
// one), `candidates`, `files` and `nospace`; this fills the last three.
constexpr const char* shared_completion = R"(
_metaformer_add_configs() {
  local list folder file
  program=$(command -v -- "$program") && program=$(readlink -f -- "$program")
  list="${METAFORMER_CONFIG_PATH-}:${program%/*/*}/share/metaformer/configs:${program%/*/*/*}/configs:"
  while [[ -n $list ]]; do
    folder=${list%%:*} list=${list#*:}
    [[ -n $folder ]] || continue
    for file in "$folder"/*.yaml; do
      [[ ! -e $file ]] || candidates+=("${file##*/}")
    done
  done
}

_metaformer_add_settings() {
  local key
  local -a values
  if [[ $1 == *=* ]]; then
    _metaformer_key_values "${1%%=*}"
    for key in "${values[@]}"; do candidates+=("${1%%=*}=$key"); done
  else
    nospace=yes
    for key in "${_metaformer_keys[@]}"; do candidates+=("$key="); done
  fi
}

_metaformer_candidates() {
  local current=$1 word place= previous= helps=
  local -a subcommands flags valued expected
  _metaformer_command ''
  for word in "${line[@]}"; do
    if [[ -n $word && " ${subcommands[*]} " == *" $word "* ]]; then
      place="${place:+$place }$word"
      [[ $place != help ]] || { helps=yes place=; }
      _metaformer_command "$place"
    fi
    previous=$word
  done
  if [[ -n $previous && " ${valued[*]} " == *" $previous "* ]]; then
    _metaformer_expected "$place $previous"
  elif [[ $current == -* ]]; then
    [[ -z $helps ]] || _metaformer_command help
    expected=(OPTIONS)
  elif [[ -n ${subcommands[*]} || -n $helps ]]; then
    expected=("${subcommands[@]}")
  else
    _metaformer_expected "$place "
  fi
  case ${expected[*]} in
    CONFIG) files=yes; _metaformer_add_configs ;;
    KEY=VALUE) _metaformer_add_settings "$current" ;;
    KEY) candidates=("${_metaformer_sections[@]}" "${_metaformer_keys[@]}") ;;
    FILE) files=yes ;;
    OPTIONS) candidates=("${flags[@]}" "${valued[@]}") ;;
    *) candidates=("${expected[@]}") ;;
  esac
}
)";

// bash cuts words at each "=" and replaces only what follows the last one.
constexpr const char* bash_completion = R"(
_metaformer() {
  local program=${COMP_WORDS[0]} current files= nospace= word kept= i
  local -a line=() candidates=()
  COMPREPLY=()
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ ${#line[@]} -gt 0 && ($word == = || ${COMP_WORDS[i - 1]} == =) ]]; then
      line[-1]+=$word
    else
      line+=("$word")
    fi
  done
  current=${line[-1]}
  unset 'line[-1]'
  if [[ $current == --*=* ]]; then
    line+=("${current%%=*}")
    current=${current#*=}
  fi
  _metaformer_candidates "$current"
  [[ $COMP_WORDBREAKS != *=* || $current != *=* ]] || kept=${current%=*}=
  for word in "${candidates[@]}"; do
    [[ $word != "$current"* ]] || COMPREPLY+=("${word#"$kept"}")
  done
  if [[ -n $files ]]; then
    while read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
    compopt -o filenames 2>/dev/null
  fi
  [[ -z $nospace ]] || compopt -o nospace 2>/dev/null
}
complete -F _metaformer metaformer
)";

// Works both as a file of $fpath, which is run as the function _metaformer, and read with source.
constexpr const char* zsh_completion = R"(
_metaformer() {
  emulate -L zsh
  setopt nullglob
  local program=${words[1]} current=$PREFIX files= nospace=
  local -a line candidates
  line=("${(@)words[2,CURRENT-1]}")
  if [[ $current == --*=* ]]; then
    line+=("${current%%=*}")
    compset -P 1 '*='
    current=${current#*=}
  fi
  _metaformer_candidates "$current"
  if [[ -n $nospace ]]; then
    compadd -S '' -- "${candidates[@]}"
  else
    compadd -- "${candidates[@]}"
  fi
  [[ -z $files ]] || _files
}
if [[ ${funcstack[1]} == _metaformer ]]; then
  _metaformer "$@"
else
  compdef _metaformer metaformer
fi
)";

}  // namespace metaformer
