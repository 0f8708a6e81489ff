#include "optim/make_optimizer.h"

#include "optim/adamw.h"

namespace metaformer {

std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config) {
  return std::make_unique<AdamW>(parameters, std::get<AdamWConfig>(config.optimizer));
}

}  // namespace metaformer
