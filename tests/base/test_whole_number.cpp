#include <limits>

#include "base/text.h"
#include "support/catch.h"

namespace metaformer {

TEST_CASE("whole numbers are read with and without an exponent", "[numbers]") {
  const auto [text, expected] = GENERATE(table<std::string, std::int64_t>({
      {"12", 12},
      {"+3", 3},
      {"-4", -4},
      {"1e3", 1000},
      {"+2.5e2", 250},
      {"1E3", 1000},
      {"7.0", 7},
      {"010", 10},
      {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
      {"9007199254740992e0", 9007199254740992},
  }));
  INFO(text);
  std::int64_t value = 0;
  CHECK(parse_whole_number(text, value) == WholeNumber::valid);
  CHECK(value == expected);
}

TEST_CASE("what is no whole number is told from what is too large", "[numbers]") {
  const auto [text, expected] = GENERATE(table<std::string, WholeNumber>({
      {"1.5", WholeNumber::malformed},
      {"1.5e0", WholeNumber::malformed},
      {"1e-3", WholeNumber::malformed},
      {"1e-400", WholeNumber::malformed},
      {"", WholeNumber::malformed},
      {"+", WholeNumber::malformed},
      {"+-3", WholeNumber::malformed},
      {" 3", WholeNumber::malformed},
      {"3 ", WholeNumber::malformed},
      {"0x10", WholeNumber::malformed},
      {"nan", WholeNumber::malformed},
      {"inf", WholeNumber::malformed},
      {"1e30", WholeNumber::too_large},
      {"-1e400", WholeNumber::too_large},
      {"9223372036854775808", WholeNumber::too_large},
      {"18446744073709551615", WholeNumber::too_large},
  }));
  INFO(text);
  std::int64_t value = 5;
  CHECK(parse_whole_number(text, value) == expected);
  CHECK(value == 5);
}

}  // namespace metaformer
