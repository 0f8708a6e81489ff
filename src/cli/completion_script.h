#pragma once
// Scripts that let a shell complete command lines of the program.

#include <CLI/CLI.hpp>
#include <string>

namespace metaformer {

enum class Shell { bash, zsh };

// The script for a shell: commands, options and their values come from `program`, keys of --set from explain_config.
std::string completion_script(const CLI::App& program, Shell shell);

}  // namespace metaformer
