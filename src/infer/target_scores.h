#pragma once
// How the targets that a model writes agree with those of a split.

#include "config/experiment_config.h"
#include "data/pairs.h"
#include "distributed/process_group.h"
#include "infer/beam_search.h"
#include "model/sequence_model.h"

namespace metaformer {

// BLEU, also of lower-cased texts, and chrF in percent, with their signatures; ROUGE's F1 as fractions; and the
// fraction of targets of which every token is written. Beside them the scores of two texts that need no model: the
// source, and its first sentence. Processes take turns in batches; all of them get the scores.
WrittenScores score_written_targets(SequenceModel& model, const ExperimentConfig& config, torch::Device device,
                                    const PairDataset& pairs, Split split, const BeamOptions& options,
                                    ProcessGroup& group);

// Up to the first full stop, question or exclamation mark before white space; all of it if there is none.
std::string first_sentence(const std::string& text);

}  // namespace metaformer
