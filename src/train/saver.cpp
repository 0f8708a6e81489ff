#include "train/saver.h"

#include <fmt/format.h>

#include "ops/named_tensors.h"

namespace metaformer {

void Saver::require_finite() const {
  if (setup_.parameters->first_not_finite(setup_.parameters->values())) throw divergence_.error("state");
  if (const auto name = setup_.optimizer->first_not_finite(); !name.empty())
    throw divergence_.error(fmt::format("optimiser's {}", name));
}

void Saver::save(const Progress& progress, const MetricsLog& metrics) {
  require_finite();
  const WeightAverage::Use average(*setup_.average);
  evaluator_.adapt(progress.step);
  metrics.sync();
  save_checkpoint(run_, progress, named_state(*setup_.model), setup_.state(), task_.data->codec(), keep_);
}

}  // namespace metaformer
