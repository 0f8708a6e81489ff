#include "model/parameter_names.h"

#include <charconv>

namespace metaformer {

// The number that `text` begins with.
static std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> block_number(std::string_view name) {
  constexpr std::string_view blocks = "blocks.", layer = "_l";
  if (const auto found = name.find(blocks); found != std::string_view::npos)
    return leading_number(name.substr(found + blocks.size()));
  const auto found = name.rfind(layer);
  return found == std::string_view::npos ? std::nullopt : leading_number(name.substr(found + layer.size()));
}

bool is_below(std::string_view name, std::string_view beginning) {
  return name.starts_with(beginning) && (name.size() == beginning.size() || name[beginning.size()] == '.');
}

bool has_part(std::string_view name, std::string_view part) {
  for (std::size_t begin = 0; begin != std::string_view::npos;) {
    if (is_below(name.substr(begin), part)) return true;
    const auto dot = name.find('.', begin);
    begin = dot == std::string_view::npos ? dot : dot + 1;
  }
  return false;
}

}  // namespace metaformer
