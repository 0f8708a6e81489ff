#pragma once
// Help, and messages for a command line that cannot be parsed.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace metaformer {

// Help that lists an option once, also when it may be given by position.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

// `metaformer help [COMMAND...]`. Keeps a reference to the program.
void add_help_command(CLI::App& program);

// All subcommands, in the order in which they were added.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app);

// One line with the wrong argument, a suggestion, and the help to read. `program` has tried to parse the arguments.
std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error);

}  // namespace metaformer
