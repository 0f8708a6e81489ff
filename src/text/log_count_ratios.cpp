#include "text/log_count_ratios.h"

#include <cmath>

namespace metaformer {

std::vector<double> log_count_ratios(const std::vector<LabelledFeatures>& texts, std::int64_t label, std::size_t size) {
  std::vector<double> members(size), others(size);
  for (const auto& text : texts)
    for (const auto feature : text.features) ++(text.label == label ? members : others)[feature];
  double member_sum = 0, other_sum = 0;
  const auto is_seen = [&](std::size_t feature) { return members[feature] + others[feature] > 0; };
  for (std::size_t feature = 0; feature < size; ++feature) {
    if (!is_seen(feature)) continue;
    member_sum += members[feature] + log_count_smoothing;
    other_sum += others[feature] + log_count_smoothing;
  }
  std::vector<double> ratios(size);
  for (std::size_t feature = 0; feature < size; ++feature)
    if (is_seen(feature))
      ratios[feature] = std::log((members[feature] + log_count_smoothing) / member_sum) -
                        std::log((others[feature] + log_count_smoothing) / other_sum);
  return ratios;
}

}  // namespace metaformer
