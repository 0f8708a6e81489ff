#pragma once
// Learning rates by depth (Howard and Ruder 2018, "discriminative fine-tuning") and by name, and parameters that do not
// change.

#include "config/train_config.h"
#include "model/parameters.h"

namespace metaformer {

// Sets the factor of every parameter's learning rate: 0 where train.freeze names it; else train.layer_rate_decay to the
// power of its distance from the head: 0 for the head and the norms before it, 1 for the last block, one more for each
// block before it, and one more than the first block's for embeddings and positions; times the factor that
// train.rate_factors has for it. Errors (exit code 2): a name in train.freeze or train.rate_factors that no parameter
// has, two factors for one parameter, or all are frozen.
void set_layer_rates(ParameterBuffer& parameters, const TrainConfig& config);

}  // namespace metaformer
