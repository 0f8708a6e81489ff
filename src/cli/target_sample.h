#pragma once
// One target that an encoder and decoder writes, with what it attends to.

#include "infer/beam_search.h"
#include "infer/load_run.h"

namespace metaformer {

// Prints the best target for a source, and for every token of it the source's tokens with the largest weights; with
// `json` one line with all weights, which are means over layers and heads of the cross-attention. Errors: exit code 2
// for a source that cannot be read, 4 for numbers that are not finite.
void show_target(const LoadedRun& run, const std::string& source, const BeamOptions& options, bool json);

}  // namespace metaformer
