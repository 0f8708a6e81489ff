#pragma once
// Help, and what is wrong with a command line that cannot be parsed.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace metaformer {

// Help in which an option that may also be given by position stands once.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

// `metaformer help [COMMAND...]`. Keeps a reference to the program.
void add_help_command(CLI::App& program);

// One line: the argument, what was probably meant, and where to read on. `program` has tried to parse the arguments.
std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error);

}  // namespace metaformer
