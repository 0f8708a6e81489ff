#pragma once
// An entry of train.rate_factors.

#include <optional>
#include <string>

namespace metaformer {

// Multiplies the learning rate of the parameters that `name` names.
struct RateFactor {
  std::string name;
  double factor = 1;
};

// Of "NAME=FACTOR", where the factor is a finite number above 0; nothing for another text.
std::optional<RateFactor> parse_rate_factor(const std::string& entry);

}  // namespace metaformer
