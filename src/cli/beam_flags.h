#pragma once
// Options of commands that write targets.

#include <CLI/CLI.hpp>

#include "infer/beam_search.h"
#include "run/load_run.h"

namespace metaformer {

// --beam, --alpha, --further-tokens.
void add_beam_to(CLI::App& command, BeamOptions& beam);

// What of these, or of the names given, is on the command line.
std::vector<std::string> given_beam_flags(const CLI::App& command);
std::vector<std::string> given_flags(const CLI::App& command, const std::vector<std::string>& names);

// Errors (exit code 2): there are some, of which a run of this task makes nothing.
void require_no_flags(const std::vector<std::string>& given, const LoadedRun& run);

}  // namespace metaformer
