#pragma once
// The optimiser that a config asks for.

#include <memory>

#include "config/train_config.h"
#include "model/parameters.h"
#include "train/optim/optimizer.h"

namespace metaformer {

// Keeps a reference to `parameters`. `scale`: of gradients of a scaled loss.
std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale = {});

}  // namespace metaformer
