#pragma once
// Defaults that follow from other keys. Each counts where no source of the config sets its key.

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

// train.schedule.floor: a rate below the usual floor falls to a tenth of itself.
// data.tokenizer.whitespace: kept for the task language_model.
// model.embedding.scale: default_embedding_scale.
// train.cpu_slices: default_slices.
void derive_defaults(ExperimentConfig& config, const Provenance& provenance);

// sqrt_width where sinusoids, of amplitude 1, are added to embeddings that start much smaller (2017); else none.
EmbeddingScale default_embedding_scale(const ModelConfig& model);

// Of a model that has positions; others stay as they are.
void set_embedding_scale(ModelConfig& model, EmbeddingScale scale);

// One slice for each 384 tokens of a training batch times the width / 128, at least 1 and at most 8: a function of the
// config, so that a run has the same bytes on every machine. Labelled texts and pairs, which are padded, count as a
// quarter of the context. 1 where the gradients of all slices would take too much memory (models wider than 384;
// n-grams) or cannot be had (regions, bags).
std::int64_t default_slices(const ExperimentConfig& config);

}  // namespace metaformer
