#include "config/yaml_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "yaml/tree.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

// What YAML 1.1, which PyYAML reads, takes for a text: no number, date, boolean or null.
bool is_plain_word(const std::string& text) {
  constexpr std::array<std::string_view, 9> other = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  const bool harmless = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  });
  auto lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return harmless && std::isalpha(static_cast<unsigned char>(text.empty() ? ' ' : text[0])) != 0 &&
         std::find(other.begin(), other.end(), lower) == other.end();
}

// With a point, without which YAML 1.1 takes 1e-05 for a text and 1 for an integer.
std::string yaml_number(double value) {
  auto text = fmt::format("{}", value);
  if (text.find('.') != std::string::npos || !std::isfinite(value)) return text;
  return text.insert(std::min(text.find('e'), text.size()), ".0");
}

// Bytes that are not UTF-8 as \xff, backslashes doubled.
std::string escape_bytes(std::string_view text) {
  std::string escaped_text;
  while (!text.empty()) {
    const auto valid = utf8::find_invalid(text.begin(), text.end()) - text.begin();
    for (const char c : text.substr(0, static_cast<std::size_t>(valid)))
      escaped_text += c == '\\' ? "\\\\" : std::string(1, c);
    text.remove_prefix(static_cast<std::size_t>(valid));
    if (text.empty()) break;
    escaped_text += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  return escaped_text;
}

std::string yaml_text(const std::string& text) {
  if (is_plain_word(text)) return text;
  if (utf8::is_valid(text.begin(), text.end())) return escaped(Json(text).dump());  // JSON's quoting is valid YAML
  return fmt::format("{} {}", escaped_tag, escaped(Json(escape_bytes(text)).dump()));
}

}  // namespace

std::string yaml_value(const Json& value) {
  if (value.is_string()) return yaml_text(value.get<std::string>());
  if (value.is_number_float()) return yaml_number(value.get<double>());
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(yaml_value(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  return value.dump();
}

}  // namespace metaformer
