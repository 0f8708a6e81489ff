#pragma once
// Texts of the runs of a report: their prompts, their answers, and texts of their validation splits.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/pairs.h"
#include "run/load_run.h"

namespace metaformer {

// Options of a run's answer: text of a language model, the sorted list of a sorter, the classes of a classifier, a
// translation.
struct PromptOptions {
  std::optional<std::string> prompt;  // default: a line break, a list from the largest number down, or a sentence (for
                                      // data.source_language de a German one); a text of the run's data is better
  std::int64_t tokens = 300;          // that a language model generates
  double temperature = 0.8;
  std::uint64_t seed = 1337;
};

// The prompt of the options, or the default one of the run's task.
std::string prompt_for(const LoadedRun& run, const PromptOptions& options);

// The answer to prompt_for(run, options). Errors: exit code 2 or 3 for a prompt that the run cannot read.
std::string answer(const LoadedRun& run, const PromptOptions& options);

// The target that an encoder-decoder writes for a source. Errors: exit code 3 for a source that it cannot read.
std::string written_target(const LoadedRun& run, const std::string& source);

// Texts of a run's validation split, as they were read.
struct HeldOutTexts {
  std::optional<std::string> text;             // a short one; nothing for a task without texts
  std::vector<PairDataset::Texts> pairs = {};  // of an encoder-decoder: a few, from long to short sources
};

// Downloads nothing. Errors: the data cannot be read.
HeldOutTexts held_out_texts(const LoadedRun& run);

}  // namespace metaformer
