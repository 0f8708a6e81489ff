#pragma once
// The task of predicting hidden tokens.

#include "config/experiment_config.h"
#include "data/text_dataset.h"
#include "tasks/task.h"
#include "text/tokenizer.h"

namespace metaformer {

// The batches of a masked language model over a text.

// Windows at random places, of which an epoch has as many tokens as the split; with data.packing packs of documents, in
// another order in every epoch. An evaluation has every token of the split in one row, and always the same targets.
// Keeps a reference to the tokenizer.
std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer);

// Predicting hidden tokens of a text from those on both sides of them.

// Its model is a MaskedLanguageModel (model/token_model.h). Its metrics have unigram_entropy, the loss of
// predicting every token of the split by its frequency: a model with a lower loss has learned from what is around.
Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
