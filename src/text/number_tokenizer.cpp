#include "text/number_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

std::vector<std::int32_t> NumberTokenizer::encode(std::string_view text) const {
  constexpr std::string_view separators = ", \t\r\n";
  std::vector<std::int32_t> ids;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(separators), text.size()));
    if (text.empty()) return ids;
    const auto number = text.substr(0, text.find_first_of(separators));
    ids.push_back(id(number));
    text.remove_prefix(number.size());
  }
}

std::int32_t NumberTokenizer::id(std::string_view number) const {
  std::int32_t value = 0;
  const auto* end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, value);
  if (at != end || error == std::errc::invalid_argument)
    throw Error(ExitCode::data, fmt::format("{} is not a number", in_quotes(number)));
  if (error == std::errc::result_out_of_range || value < 0 || value >= count_)
    throw Error(ExitCode::data, fmt::format("the number {} is not among 0 ... {}", in_quotes(number), count_ - 1));
  return value;
}

std::string NumberTokenizer::decode(std::span<const std::int32_t> ids) const {
  return fmt::format("{}", fmt::join(ids.begin(), ids.end(), token_separator()));
}

nlohmann::ordered_json NumberTokenizer::to_json() const { return {{"kind", kind}, {"count", count_}}; }

}  // namespace metaformer
