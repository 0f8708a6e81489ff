#include "cli/completion_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <vector>

#include "cli/completion_text.h"
#include "cli/usage.h"
#include "config/writer.h"

namespace metaformer {

namespace {

using Words = std::vector<std::string>;

// "a|b|c" to "a b c".
std::string with_spaces(std::string alternatives) {
  std::replace(alternatives.begin(), alternatives.end(), '|', ' ');
  return alternatives;
}

std::string array(const char* name, const Words& words) { return fmt::format("{}=({})", name, fmt::join(words, " ")); }

// What the script offers for a value: names of configs, keys, the words of "a|b", nothing for numbers, else files.
std::string expected_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT")) return "";
  const bool is_known = type == "CONFIG" || type == "KEY=VALUE" || type == "KEY" || type.find('|') != std::string::npos;
  return is_known ? with_spaces(type) : "FILE";
}

// The lines of two case statements: the words that may follow a command, and what its options and positions take.
struct Tables {
  std::string commands, expected;

  void add(const CLI::App& command, const std::string& words) {
    Words subcommands, flags, valued;
    for (const auto* option : command.get_options()) {
      auto& names = option->get_items_expected_max() == 0 ? flags : valued;
      for (const auto& name : option->get_lnames()) {
        names.push_back("--" + name);
        if (&names == &valued) add_expected(words + " --" + name, *option);
      }
      if (option->get_positional()) add_expected(words + " ", *option);
    }
    for (const auto* next : subcommands_of(command)) subcommands.push_back(next->get_name());
    commands += fmt::format("    '{}') {} {} {} ;;\n", words, array("subcommands", subcommands), array("flags", flags),
                            array("valued", valued));
    for (const auto* next : subcommands_of(command))
      add(*next, words.empty() ? next->get_name() : words + " " + next->get_name());
  }

 private:
  void add_expected(const std::string& words, const CLI::Option& option) {
    expected += fmt::format("    '{}') expected=({}) ;;\n", words, expected_of(option));
  }
};

// The words of "a, b or c"; none when a key takes anything else, such as a number.
Words choices_of(std::string expected) {
  Words choices;
  for (const std::string separator : {", or ", " or ", ", "})
    for (auto at = expected.find(separator); at != std::string::npos; at = expected.find(separator))
      expected.replace(at, separator.size(), "|");
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = expected.find('|', begin);
    choices.push_back(expected.substr(begin, end - begin));
  }
  const std::set<std::string> types = {"text", "number", "integer"};
  const auto is_choice = [&](const std::string& word) {
    return types.count(word) == 0 &&
           std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  };
  return std::all_of(choices.begin(), choices.end(), is_choice) ? choices : Words{};
}

// A function that gives the values of a key, and arrays of all keys and all sections.
std::string config_keys() {
  std::map<std::string, std::set<std::string>> values;  // a key may have other values with another kind
  std::set<std::string> sections;
  for (const auto& field : explain_config()) {
    const auto choices = choices_of(field.expected);
    values[field.path].insert(choices.begin(), choices.end());
    for (auto dot = field.path.find('.'); dot != std::string::npos; dot = field.path.find('.', dot + 1))
      sections.insert(field.path.substr(0, dot));
  }
  Words keys;
  std::string cases;
  for (const auto& [key, choices] : values) {
    keys.push_back(key);
    sections.erase(key);  // what has a kind is a key, too
    if (!choices.empty()) cases += fmt::format("    {}) values=({}) ;;\n", key, fmt::join(choices, " "));
  }
  return fmt::format("_metaformer_key_values() {{\n  values=()\n  case $1 in\n{}  esac\n}}\n{}\n{}\n", cases,
                     array("_metaformer_sections", {sections.begin(), sections.end()}),
                     array("_metaformer_keys", keys));
}

}  // namespace

std::string completion_script(const CLI::App& program, Shell shell) {
  Tables tables;
  tables.add(program, "");
  const bool is_bash = shell == Shell::bash;
  return fmt::format(
      "{}\n"
      "_metaformer_command() {{\n  subcommands=() flags=() valued=()\n  case $1 in\n{}  esac\n}}\n"
      "_metaformer_expected() {{\n  case $1 in\n{}    *' ') expected=(OPTIONS) ;;\n  esac\n}}\n"
      "{}{}{}",
      is_bash ? "# bash completion of metaformer" : "#compdef metaformer", tables.commands, tables.expected,
      config_keys(), shared_completion, is_bash ? bash_completion : zsh_completion);
}

}  // namespace metaformer
