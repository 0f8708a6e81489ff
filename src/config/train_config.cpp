#include "config/train_config.h"

#include <charconv>

#include "config/schema.h"

namespace metaformer {

std::optional<RateFactor> parse_rate_factor(const std::string& entry) {
  const auto equals = entry.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  RateFactor parsed{.name = entry.substr(0, equals)};
  const char* end = entry.data() + entry.size();
  const auto [stop, error] = std::from_chars(entry.data() + equals + 1, end, parsed.factor);
  const bool is_number = error == std::errc() && stop == end && equals + 1 < entry.size();
  return is_number && positive.contains(parsed.factor) ? std::optional(parsed) : std::nullopt;
}

}  // namespace metaformer
