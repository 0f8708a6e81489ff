#include <algorithm>
#include <map>
#include <set>

#include "cli/command_line.h"
#include "config/explain.h"

namespace metaformer {

// The parts of the completion scripts that do not depend on the program's commands. They follow the generated functions
// _metaformer_command, _metaformer_expected and _metaformer_key_values.

// For bash and zsh. The caller has local variables `program`, `line` (the words between the program and the current
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

# Folders with a config.yaml in runs or one folder below it, and any other path.
_metaformer_add_runs() {
  local file
  files=yes
  for file in runs/*/config.yaml runs/*/*/config.yaml; do
    [[ ! -e $file ]] || candidates+=("${file%/*}")
  done
}

# Checkpoints of the run on the line, by default of the latest one, or a path.
_metaformer_add_checkpoints() {
  local word previous= run=runs/latest folder
  [[ $1 != */* ]] || files=yes
  candidates=(best last)
  for word in "${line[@]}"; do
    [[ $word != --run=* && $word != --resume=* ]] || run=${word#*=}
    [[ ($previous != --run && $previous != --resume) || $word == -* ]] || run=$word
    previous=$word
  done
  run=${run/#\~\//$HOME/}
  for folder in "$run"/checkpoints/step-*; do
    [[ ! ${folder##*/} =~ ^step-[0-9]+$ ]] || candidates+=("${folder##*/}")
  done
}

_metaformer_candidates() {
  local current=$1 word place= previous= helps=
  local -a subcommands flags valued optional expected
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
  elif [[ -n $previous && " ${optional[*]} " == *" $previous "* ]]; then
    _metaformer_expected "$place $previous"
  elif [[ -n ${subcommands[*]} || -n $helps ]]; then
    [[ -n $helps ]] || _metaformer_expected "$place "
    [[ ${expected[*]} != FILE ]] || files=yes
    expected=("${subcommands[@]}")
  else
    _metaformer_expected "$place "
  fi
  case ${expected[*]} in
    CONFIG) files=yes; _metaformer_add_configs ;;
    RUN) _metaformer_add_runs ;;
    CHECKPOINT) _metaformer_add_checkpoints "$current" ;;
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

// Works as a file of $fpath, which is run as the function _metaformer, and also when it is read with `source`.
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

// The same functions. With -S a function sets variables of its caller.
constexpr const char* fish_completion = R"(
function _metaformer_add_configs -S
  set -l file (realpath -- (command -s -- $program; or echo $program))
  set -l folders (string split -n : -- "$METAFORMER_CONFIG_PATH") \
    (string replace -r '/[^/]*/[^/]*$' /share/metaformer/configs -- "$file") \
    (string replace -r '/[^/]*/[^/]*/[^/]*$' /configs -- "$file")
  for file in $folders/*.yaml
    set -a candidates (string replace -r '.*/' '' -- $file)
  end
end

function _metaformer_add_settings -S
  set -l values
  if string match -q -- '*=*' $argv[1]
    set -l key (string replace -r '=.*' '' -- $argv[1])
    _metaformer_key_values $key
    set -a candidates $key=$values
  else
    set -a candidates $_metaformer_keys=
  end
end

function _metaformer_add_runs -S
  set files yes
  for file in runs/*/config.yaml runs/*/*/config.yaml
    set -a candidates (string replace -r '/config.yaml$' '' -- $file)
  end
end

function _metaformer_add_checkpoints -S
  set -l previous
  set -l run runs/latest
  string match -q -- '*/*' $argv[1]; and set files yes
  set candidates best last
  for word in $line
    if string match -q -r -- '^--(run|resume)=' $word
      set run (string replace -r '^[^=]*=' '' -- $word)
    else if contains -- "$previous" --run --resume; and not string match -q -- '-*' $word
      set run $word
    end
    set previous $word
  end
  set run (string replace -r '^~/' "$HOME/" -- $run)
  for folder in $run/checkpoints/step-*
    set -a candidates (string match -r -- '[^/]*$' $folder | string match -r -- '^step-[0-9]+$')
  end
end

function _metaformer_candidates -S
  set -l current $argv[1]
  set -l place ''
  set -l previous
  set -l helps
  set -l subcommands
  set -l flags
  set -l valued
  set -l optional
  set -l expected
  _metaformer_command ''
  for word in $line
    if contains -- $word $subcommands
      set place (string trim -- "$place $word")
      test $place = help; and set helps yes; and set place ''
      _metaformer_command $place
    end
    set previous $word
  end
  if contains -- "$previous" $valued
    _metaformer_expected "$place $previous"
  else if string match -q -- '-*' $current
    test -z "$helps"; or _metaformer_command help
    set expected OPTIONS
  else if contains -- "$previous" $optional
    _metaformer_expected "$place $previous"
  else if set -q subcommands[1]; or test -n "$helps"
    test -n "$helps"; or _metaformer_expected "$place "
    test "$expected" != FILE; or set files yes
    set expected $subcommands
  else
    _metaformer_expected "$place "
  end
  switch "$expected"
    case CONFIG
      set files yes
      _metaformer_add_configs
    case RUN
      _metaformer_add_runs
    case CHECKPOINT
      _metaformer_add_checkpoints $current
    case KEY=VALUE
      _metaformer_add_settings $current
    case KEY
      set candidates $_metaformer_sections $_metaformer_keys
    case FILE
      set files yes
    case OPTIONS
      set candidates $flags $valued
    case '*'
      set candidates $expected
  end
end

function _metaformer
  set -l line (commandline -opc)
  set -l current (commandline -ct)
  set -l program $line[1]
  set -l option
  set -l candidates
  set -l files
  set -e line[1]
  if string match -q -- '--*=*' $current
    set -a line (string replace -r '=.*' '' -- $current)
    set option $line[-1]=
    set current (string replace -r '^[^=]*=' '' -- $current)
  end
  _metaformer_candidates "$current"
  test -z "$files"; or set -a candidates (__fish_complete_path "$current")
  for candidate in $candidates
    printf '%s\n' "$option$candidate"
  end
end
complete -c metaformer -f -a '(_metaformer)'
)";

enum class Shell { bash, zsh, fish };
constexpr std::array<std::string_view, 3> enum_names(Shell) { return {"bash", "zsh", "fish"}; }

namespace {

using Words = std::vector<std::string>;

// The language of a shell.
struct Syntax {
  bool is_fish = false;

  // Without a scope for fish, it is that of an existing variable.
  std::string array(const char* name, const Words& words, const char* scope = "") const {
    const auto all = fmt::format("{}", fmt::join(words, " "));
    return is_fish ? fmt::format("set {}{} {}", scope, name, all) : fmt::format("{}=({})", name, all);
  }

  std::string arrays(const std::vector<std::pair<const char*, Words>>& values) const {
    Words all;
    for (const auto& [name, words] : values) all.push_back(array(name, words));
    return fmt::format("{}", fmt::join(all, is_fish ? "; " : " "));
  }

  // A line of `function`.
  std::string branch(const std::string& pattern, const std::string& statements) const {
    return is_fish ? fmt::format("    case {}\n      {}\n", pattern, statements)
                   : fmt::format("    {}) {} ;;\n", pattern, statements);
  }

  // A function that runs the statements of the branch that its argument matches.
  std::string function(const char* name, const std::string& first, const std::string& branches) const {
    return is_fish ? fmt::format("function {} -S\n  {}\n  switch \"$argv[1]\"\n{}  end\nend\n", name, first, branches)
                   : fmt::format("{}() {{\n  {}\n  case $1 in\n{}  esac\n}}\n", name, first, branches);
  }
};

// The completions that the script offers for a value: names of configs, keys, runs, checkpoints, the words of "a|b",
// nothing for numbers, else files.
std::string expected_of(const CLI::Option& option) {
  constexpr std::array<std::string_view, 5> known = {"CONFIG", "RUN", "CHECKPOINT", "KEY=VALUE", "KEY"};
  auto type = option.get_type_name();
  if (type == "RUN...") return "RUN";
  if (type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT")) return "";
  const bool is_known = std::ranges::find(known, type) != known.end() || type.find('|') != std::string::npos;
  std::ranges::replace(type, '|', ' ');
  return is_known ? type : "FILE";
}

// The branches of two functions: the words that may follow a command, and the values of its options and positions.
struct CompletionTables {
  Syntax syntax;
  std::string commands, expected;

  void add(const CLI::App& command, const std::string& words) {
    Words subcommands, flags, valued, optional;
    const auto expect = [&](const std::string& after, const CLI::Option& option) {
      expected += syntax.branch(fmt::format("'{} {}'", words, after), syntax.array("expected", {expected_of(option)}));
    };
    for (const auto* option : command.get_options()) {
      // After an option whose value may be left out (--resume) other options may follow, too.
      const bool takes_value = option->get_items_expected_min() > 0;
      const bool may_take_run = !takes_value && expected_of(*option) == "RUN";
      for (const auto& name : option->get_lnames()) {
        (takes_value ? valued : flags).push_back("--" + name);
        if (may_take_run) optional.push_back("--" + name);
        if (takes_value || may_take_run) expect("--" + name, *option);
      }
      if (option->get_positional()) expect("", *option);
    }
    const auto below = subcommands_of(command);
    for (const auto* next : below) subcommands.push_back(next->get_name());
    commands += syntax.branch(
        "'" + words + "'",
        syntax.arrays({{"subcommands", subcommands}, {"flags", flags}, {"valued", valued}, {"optional", optional}}));
    for (const auto* next : below) add(*next, words.empty() ? next->get_name() : words + " " + next->get_name());
  }
};

// A function that gives the values of a key, and arrays of all keys and all sections.
std::string config_keys(const Syntax& syntax) {
  std::map<std::string, std::set<std::string>> values;  // a key may have other values with another kind
  std::set<std::string> sections;
  for (const auto& field : explain_config()) {
    values[field.path].insert(field.choices.begin(), field.choices.end());
    for (auto dot = field.path.find('.'); dot != std::string::npos; dot = field.path.find('.', dot + 1))
      sections.insert(field.path.substr(0, dot));
  }
  Words keys;
  std::string cases;
  for (const auto& [key, choices] : values) {
    keys.push_back(key);
    sections.erase(key);  // a section with a kind is a key, too
    if (!choices.empty()) cases += syntax.branch(key, syntax.array("values", {choices.begin(), choices.end()}));
  }
  return syntax.function("_metaformer_key_values", syntax.array("values", {}), cases) +
         syntax.array("_metaformer_sections", {sections.begin(), sections.end()}, "-g ") + "\n" +
         syntax.array("_metaformer_keys", keys, "-g ") + "\n";
}

// The script for a shell: commands, options and their values come from `program`, keys of --set from explain_config.
std::string completion_script(const CLI::App& program, Shell shell) {
  const Syntax syntax{.is_fish = shell == Shell::fish};
  CompletionTables tables{.syntax = syntax};
  tables.add(program, "");
  tables.expected += syntax.branch(syntax.is_fish ? "'* '" : "*' '", syntax.array("expected", {"OPTIONS"}));
  const auto head =
      shell == Shell::zsh ? "#compdef metaformer" : fmt::format("# {} completion of metaformer", to_string(shell));
  const auto no_words = syntax.arrays({{"subcommands", {}}, {"flags", {}}, {"valued", {}}, {"optional", {}}});
  return head + "\n" + syntax.function("_metaformer_command", no_words, tables.commands) +
         syntax.function("_metaformer_expected", syntax.array("expected", {}), tables.expected) + config_keys(syntax) +
         (shell == Shell::fish   ? fish_completion
          : shell == Shell::bash ? std::string(shared_completion) + bash_completion
                                 : std::string(shared_completion) + zsh_completion);
}

}  // namespace

void add_completion_command(CLI::App& program) {
  auto& command = *program.add_subcommand("completion", "print a completion script for a shell");
  auto name = std::make_shared<std::string>();
  add_text(command, "shell", *name, "bash|zsh|fish", "shell of the script")->required();
  command.footer(
      "cmake --install puts the scripts where bash-completion, zsh and fish look for them.\n"
      "Examples:\n"
      "  source <(metaformer completion bash)                      in ~/.bashrc\n"
      "  metaformer completion zsh > ~/.zfunc/_metaformer          into a folder of zsh's fpath\n"
      "  metaformer completion fish > ~/.config/fish/completions/metaformer.fish");
  command.callback([&program, name] { print(completion_script(program, choose<Shell>("completion", *name))); });
}

}  // namespace metaformer
