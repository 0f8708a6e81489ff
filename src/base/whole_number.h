#pragma once
// Whole numbers as people write them: 12, +3, -4, also 1e3 and 2.5e2.

#include <cstdint>
#include <string_view>

namespace metaformer {

enum class WholeNumber {
  valid,
  malformed,  // not a number, or with a fraction
  too_large,  // whole, but not between -2^63 and 2^63 - 1, or with an exponent and not exact in double precision
};

// Sets `value` if the text is valid.
WholeNumber parse_whole_number(std::string_view text, std::int64_t& value);

}  // namespace metaformer
