#include "cli/usage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "config_reader/unknown_key.h"

namespace metaformer {

namespace {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_positionals(const CLI::App* app) const override {
    const auto options = app->get_options(
        [](const CLI::Option* option) { return option->get_positional() && !option->nonpositional(); });
    return options.empty() ? "" : make_group(get_label("Positionals"), true, options);
  }

  // An option whose name may be left out: "CONFIG or --config CONFIG".
  std::string make_option_usage(const CLI::Option* option) const override {
    if (!option->nonpositional()) return Formatter::make_option_usage(option);
    const auto type = option->get_type_name();
    const auto usage = fmt::format("{} or {} {}", type, option->get_name(), type);
    return option->get_required() ? usage : "[" + usage + "]";
  }
};

// A command with the words that lead to it: "metaformer config".
struct Level {
  const CLI::App* app;
  std::string words;

  Level below(const CLI::App* next) const { return {next, words + " " + next->get_name()}; }
};

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const auto* command : subcommands_of(app))
    if (command->get_name() == name) return command;
  return nullptr;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : subcommands_of(app)) names.push_back(command->get_name());
  return names;
}

std::string describe_unknown_command(const Level& level, const std::string& word) {
  const auto commands = commands_of(*level.app);
  return fmt::format("unknown command {}{}; the commands are {} (see {} --help)", in_quotes(word),
                     did_you_mean(word, commands), fmt::join(commands, ", "), level.words);
}

// From the program to the innermost command that was recognised.
std::vector<Level> parsed_levels(const CLI::App& program) {
  std::vector<Level> levels = {{&program, program.get_name()}};
  for (auto parsed = program.get_subcommands(); !parsed.empty(); parsed = levels.back().app->get_subcommands())
    levels.push_back(levels.back().below(parsed.front()));
  return levels;
}

std::string suggest_option(const CLI::App& app, const std::string& argument) {
  const auto word = argument.substr(0, argument.find('='));
  if (!word.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  auto name = word.substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  const auto key = full_key(name);
  if (!key.empty() && !key.starts_with("--") && std::find(names.begin(), names.end(), "--set") != names.end())
    return fmt::format("; did you mean '--set {}=VALUE'?", key);
  return did_you_mean(word, names);
}

std::string describe_extras(const Level& level, const std::vector<std::string>& extras) {
  const auto& first = extras.front();
  if (!first.starts_with('-') && !commands_of(*level.app).empty()) return describe_unknown_command(level, first);
  std::string list;
  for (const auto& extra : extras) list += (list.empty() ? "" : ", ") + in_quotes(extra);
  return fmt::format("unexpected argument{} {}{} (see {} --help)", extras.size() == 1 ? "" : "s", list,
                     suggest_option(*level.app, first), level.words);
}

std::string help_of(const CLI::App& program, const std::vector<std::string>& words) {
  Level level{&program, program.get_name()};
  for (const auto& word : words) {
    const auto* next = find_command(*level.app, word);
    if (next == nullptr && commands_of(*level.app).empty())
      throw Error(ExitCode::usage, fmt::format("help: {} has no commands, so {} is none (see {} --help)", level.words,
                                               in_quotes(word), level.words));
    if (next == nullptr) throw Error(ExitCode::usage, describe_unknown_command(level, word));
    level = level.below(next);
  }
  return program.get_formatter()->make_help(level.app, level.words, CLI::AppFormatMode::Normal);
}

}  // namespace

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter() { return std::make_shared<HelpFormatter>(); }

void add_help_command(CLI::App& program) {
  auto& command = *program.add_subcommand("help", "help for a command: metaformer help config dump");
  auto words = std::make_shared<std::vector<std::string>>();
  command.add_option("command", *words, "the words of the command; none: the program");
  command.callback([&program, words] { print(help_of(program, *words)); });
}

std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error) {
  const auto levels = parsed_levels(program);
  for (const auto& level : levels)
    if (const auto extras = level.app->remaining(); !extras.empty()) return describe_extras(level, extras);
  const auto& last = levels.back();
  const auto commands = commands_of(*last.app);
  if (!commands.empty())
    return fmt::format("a command is missing; expected {} (see {} --help)", join_alternatives(commands), last.words);
  return fmt::format("{} (see {} --help)", error.what(), last.words);
}

}  // namespace metaformer
