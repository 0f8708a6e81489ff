#pragma once
// The targets that an encoder and decoder writes, in the precision of its run.

#include "infer/beam_search.h"
#include "infer/load_run.h"
#include "infer/shared_answers.h"

namespace metaformer {

// The hypotheses of a beam search for every source (token ids without a mark), at least one for each. None has the
// tokenizer's unknown token. Errors (exit code 4): the model's numbers are not finite.
std::vector<std::vector<Hypothesis>> write_targets(SequenceModel& model, const ExperimentConfig& config,
                                                   torch::Device device, const Tokenizer& tokenizer,
                                                   const TextBatch& sources, const BeamOptions& options);
std::vector<std::vector<Hypothesis>> write_targets(const LoadedRun& run, const TextBatch& sources,
                                                   const BeamOptions& options);

// The best one for one source.
Hypothesis write_target(const LoadedRun& run, const std::vector<std::int32_t>& source, const BeamOptions& options = {});

}  // namespace metaformer
