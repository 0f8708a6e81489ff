#include "train/divergence.h"

#include <fmt/format.h>

namespace metaformer {

Error Divergence::error(const std::string& what) const {
  std::string culprit;
  if (const auto* gradient = parameters_.first_not_finite(parameters_.gradients())) {
    culprit = fmt::format(", first in the gradient of {}", gradient->name);
  } else if (const auto* value = parameters_.first_not_finite(parameters_.values())) {
    culprit = fmt::format(", first in {}", value->name);
  }
  return Error(ExitCode::diverged,
               fmt::format("step {}: the {} is not finite{}; try a lower train.learning_rate ({} now). {}",
                           progress_.step, what, culprit, learning_rate_,
                           progress_.best ? fmt::format("The best checkpoint is step-{}", progress_.best->step)
                                          : "No evaluation came before it"));
}

}  // namespace metaformer
