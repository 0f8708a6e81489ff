#include "train/optim/make_optimizer.h"

#include "train/optim/adagrad.h"
#include "train/optim/muon.h"
#include "train/optim/sgd.h"

namespace metaformer {

namespace {

// Of the products that orthogonalise: as those of the model.
torch::ScalarType product_type(Precision precision) {
  return precision == Precision::bf16 || precision == Precision::fp16 ? torch::kBFloat16 : torch::kFloat;
}

std::unique_ptr<Optimizer> make(ParameterBuffer& parameters, const AdamWConfig& config, Precision,
                                const GradientScale& scale) {
  return std::make_unique<Adam>(parameters, decay_ranges(parameters, config), config, Adam::Decaying::decoupled, scale);
}

std::unique_ptr<Optimizer> make(ParameterBuffer& parameters, const AdamConfig& config, Precision,
                                const GradientScale& scale) {
  return std::make_unique<Adam>(parameters, decay_ranges(parameters, config), config, Adam::Decaying::in_gradient,
                                scale);
}

std::unique_ptr<Optimizer> make(ParameterBuffer& parameters, const SgdConfig& config, Precision,
                                const GradientScale& scale) {
  return std::make_unique<Sgd>(parameters, config, scale);
}

std::unique_ptr<Optimizer> make(ParameterBuffer& parameters, const AdagradConfig& config, Precision,
                                const GradientScale& scale) {
  return std::make_unique<Adagrad>(parameters, config, scale);
}

std::unique_ptr<Optimizer> make(ParameterBuffer& parameters, const MuonConfig& config, Precision precision,
                                const GradientScale& scale) {
  return std::make_unique<Muon>(parameters, config, product_type(precision), scale);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(ParameterBuffer& parameters, const TrainConfig& config,
                                          const GradientScale& scale) {
  return std::visit([&](const auto& optimizer) { return make(parameters, optimizer, config.precision, scale); },
                    config.optimizer);
}

}  // namespace metaformer
