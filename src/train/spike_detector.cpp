#include "train/spike_detector.h"

#include <algorithm>
#include <cmath>

namespace metaformer {

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

}  // namespace metaformer
