#include "base/whole_number.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace metaformer {

// Like std::from_chars, but for the whole text: invalid_argument if characters are left over.
template <class Number>
static std::errc parse_all(std::string_view text, Number& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return stop == text.data() + text.size() ? error : std::errc::invalid_argument;
}

WholeNumber parse_whole_number(std::string_view text, std::int64_t& value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::int64_t whole = 0;
  const auto error = parse_all(text, whole);
  if (error == std::errc::result_out_of_range) return WholeNumber::too_large;
  if (error == std::errc()) {
    value = whole;
    return WholeNumber::valid;
  }
  constexpr double largest_exact = 9007199254740992;  // 2^53
  double number = 0;
  const auto other_error = parse_all(text, number);
  const bool is_tiny = text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
  if (other_error == std::errc::result_out_of_range) return is_tiny ? WholeNumber::malformed : WholeNumber::too_large;
  if (other_error != std::errc() || !std::isfinite(number) || number != std::trunc(number))
    return WholeNumber::malformed;
  if (std::abs(number) > largest_exact) return WholeNumber::too_large;
  value = static_cast<std::int64_t>(number);
  return WholeNumber::valid;
}

}  // namespace metaformer
