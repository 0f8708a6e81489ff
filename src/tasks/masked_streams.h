#pragma once
// The batches of a masked language model over a text.

#include "config/experiment_config.h"
#include "data/datasets/text_dataset.h"
#include "tasks/batch_stream.h"
#include "text/tokenizer.h"

namespace metaformer {

// Windows at random places, of which an epoch has as many tokens as the split; with data.packing packs of documents, in
// another order in every epoch. An evaluation has every token of the split in one row, and always the same targets.
// Keeps a reference to the tokenizer.
std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer);

}  // namespace metaformer
