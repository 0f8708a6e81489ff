#pragma once
// Options of commands that write targets.

#include <CLI/CLI.hpp>

#include "infer/beam_search.h"
#include "run/load_run.h"

namespace metaformer {

// --beam, --alpha, --further-tokens.
void add_beam_to(CLI::App& command, BeamOptions& beam);

// Those of these options, or of `names`, that are on the command line.
std::vector<std::string> given_beam_flags(const CLI::App& command);
std::vector<std::string> given_flags(const CLI::App& command, const std::vector<std::string>& names);

// Errors (exit code 2): an option is given that has no meaning for the run's task.
void require_no_flags(const std::vector<std::string>& given, const LoadedRun& run);

}  // namespace metaformer
