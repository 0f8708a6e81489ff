#pragma once
// The batches of a language model over a text.

#include "config/experiment_config.h"
#include "data/datasets/text_dataset.h"
#include "tasks/batch_stream.h"

namespace metaformer {

// Windows at random places, of which an epoch has as many tokens as the split. With model.memory or model.carry_state
// the text in order: a row of a step goes on where that row of the step before ended. With data.packing rows are packs
// of documents, in another order in every epoch, and evaluations see each document alone. Errors (exit code 3): the
// text is too short for that.
std::shared_ptr<const BatchStream> make_text_stream(const ExperimentConfig& config,
                                                    std::shared_ptr<const TextDataset> dataset);

}  // namespace metaformer
