#include "train/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace metaformer {

Error divergence_error(const Step& step, const Progress& progress, const std::string& what) {
  auto& parameters = *step.parameters;
  std::string culprit;
  if (const auto* gradient = parameters.first_not_finite(parameters.gradients())) {
    culprit = fmt::format(", first in the gradient of {}", gradient->name);
  } else if (const auto* value = parameters.first_not_finite(parameters.values())) {
    culprit = fmt::format(", first in {}", value->name);
  }
  return Error(ExitCode::diverged,
               fmt::format("step {}: the {} is not finite{}; try a lower train.learning_rate ({} now). {}",
                           progress.step, what, culprit, step.learning_rate(),
                           progress.best ? fmt::format("The best checkpoint is step-{}", progress.best->step)
                                         : "No evaluation came before it"));
}

bool is_spike(SpikeState& state, double norm, double threshold) {
  constexpr std::int64_t first_judged = 20;
  constexpr double memory = 0.98;           // about the last 50 steps
  constexpr double least_deviation = 0.05;  // norms that hardly vary must not make every change a spike
  if (threshold == 0 || !std::isfinite(norm) || norm <= 0) return false;
  const double value = std::log(norm), difference = value - state.mean;
  const double deviation = std::max(least_deviation, std::sqrt(state.variance));
  if (state.seen >= first_judged && difference > threshold * deviation) {
    ++state.count;
    return true;
  }
  // Until enough was seen the mean is a plain one.
  const double weight = std::max(1 - memory, 1 / static_cast<double>(++state.seen));
  state.mean += weight * difference;
  state.variance = (1 - weight) * (state.variance + weight * difference * difference);
  return false;
}

AcceptNorm spike_watch(const TrainConfig& config, Progress& progress) {
  if (config.divergence.spikes.threshold == 0) return {};
  return [&](double norm) {
    if (!is_spike(progress.spikes, norm, config.divergence.spikes.threshold)) return true;
    const bool skips = config.divergence.spikes.action == SpikeAction::skip;
    log::warning("step {}: the gradient norm {:.3g} is a spike (number {}){}", progress.step + 1, norm,
                 progress.spikes.count, skips ? "; its update is skipped" : "");
    return !skips;
  };
}

double rollback_factor(const TrainConfig& config, const Progress& progress) {
  const auto* rollback = std::get_if<RollbackConfig>(&config.divergence.action);
  return rollback == nullptr ? 1 : std::pow(rollback->factor, static_cast<double>(progress.rollbacks));
}

std::int64_t batch_step(const Progress& progress) {
  constexpr std::int64_t far = std::int64_t{1} << 36;
  return progress.step + progress.rollbacks * far;
}

}  // namespace metaformer
