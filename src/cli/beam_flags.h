#pragma once
// Options of commands that write targets.

#include <CLI/CLI.hpp>

#include "infer/beam_search.h"
#include "infer/load_run.h"

namespace metaformer {

// --beam, --alpha, --further-tokens.
void add_beam_to(CLI::App& command, BeamOptions& beam);
std::vector<std::string> given_beam_flags(const CLI::App& command);

// Errors (exit code 2): there are some, for a run that writes no targets.
void require_no_flags(const std::vector<std::string>& given, const LoadedRun& run);

}  // namespace metaformer
