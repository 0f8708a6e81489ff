#pragma once
// The answer of a run to a prompt: text of a language model, the sorted list of a sorter, the classes of a classifier,
// a translation.

#include <cstdint>
#include <optional>
#include <string>

#include "run/load_run.h"

namespace metaformer {

struct PromptOptions {
  std::optional<std::string> prompt;  // default: a line break, a list from the largest number down, a sentence (as
                                      // source German with data.source_language de); validation_text is better
  std::int64_t tokens = 300;          // that a language model generates
  double temperature = 0.8;
  std::uint64_t seed = 1337;
};

// A short text of the validation split of a classifier, a translator or a masked language model, as it was read: what
// its tokens and classes are about. Nothing for other runs. Nothing is downloaded. Errors: the data cannot be read.
std::optional<std::string> validation_text(const LoadedRun& run);

std::string prompt_for(const LoadedRun& run, const PromptOptions& options);

// The answer to prompt_for(run, options). Errors: exit code 2 or 3 for a prompt that the run cannot read.
std::string answer(const LoadedRun& run, const PromptOptions& options);

}  // namespace metaformer
