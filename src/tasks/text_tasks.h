#pragma once
// The tasks over a text: predicting its next token, and predicting hidden tokens from those on both sides of them.

#include "config/experiment_config.h"
#include "data/text_dataset.h"
#include "tasks/task.h"
#include "text/tokenizer.h"

namespace metaformer {

// The batches of a language model: windows at random places; an epoch has as many tokens as the split. With
// model.memory or model.carry_state the text in order: each row of a step continues the same row of the previous step.
// With data.packing rows are packs of documents, in another order in every epoch, and evaluations see each document
// separately. Throws Error (exit code 3) if the text is too short for that.
std::shared_ptr<const BatchStream> make_text_stream(const ExperimentConfig& config,
                                                    std::shared_ptr<const TextDataset> dataset);

// The batches of a masked language model: windows at random places, or with data.packing packs of documents, likewise.
// An evaluation has every token of the split in one row, and always the same targets. Keeps a reference to the
// tokenizer.
std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer);

// The task of a config over a dataset: predicting the next token, or hidden ones. The measures of hidden tokens have
// unigram_entropy, the loss of predicting every token of the split by its frequency: a model with a lower loss has
// learned from the context.
Task text_task_over(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset);

// The same over the data of the config. Errors: those of load_text; exit code 3 for a split without a whole window.
Task make_text_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
