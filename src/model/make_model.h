#pragma once
// Makes the network of a config.

#include <memory>

#include "config/experiment_config.h"
#include "model/sequence_model.h"
#include "text/tokenizer.h"

namespace metaformer {

struct ModelSizes {
  std::int64_t vocabulary = 0;
  std::int64_t classes = 0;  // classification only
};

ModelSizes sizes_of(const Codec& codec);

// The model, not yet initialised (see model/parameters.h). Throws Error (exit code 2) for model.kind: linear, which is
// no network.
std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes);

// The number of parameters of the model, also of a linear one; allocates no memory for them.
std::int64_t count_parameters(const ExperimentConfig& config, const ModelSizes& sizes);

}  // namespace metaformer
