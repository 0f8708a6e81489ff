#include "text/symbol_tokenizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const { return {ids.begin(), ids.end()}; }

nlohmann::ordered_json ByteTokenizer::to_json() const { return {{"kind", ByteTokenizerOptions::kind}}; }

CharacterTokenizer CharacterTokenizer::from_text(std::string_view text, Unknown unknown) {
  std::set<std::uint32_t> points;
  for_each_code_point(text, [&](std::uint32_t point) { points.insert(point); });
  std::vector<std::string> characters;
  for (const auto point : points) characters.push_back(to_utf8(point));
  return {std::move(characters), "text", unknown};
}

CharacterTokenizer::CharacterTokenizer(std::vector<std::string> characters, const std::string& source, Unknown unknown)
    : characters_(std::move(characters)), unknown_(unknown) {
  for (const auto& character : characters_) {
    std::vector<std::uint32_t> points;
    for_each_code_point(character, [&](std::uint32_t point) { points.push_back(point); });
    const bool fresh = points.size() == 1 && ids_.try_emplace(points[0], static_cast<std::int32_t>(ids_.size())).second;
    if (!fresh) fail_data("{}: {} is not one new character", source, in_quotes(character));
  }
}

std::vector<std::int32_t> CharacterTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  const auto unknown = unknown_id();
  for_each_code_point(text, [&](std::uint32_t point) {
    const auto found = ids_.find(point);
    if (found == ids_.end() && !unknown)
      fail_data("the character {} (U+{:04X}) is not among the {} this model knows", in_quotes(to_utf8(point)), point,
                characters_.size());
    ids.push_back(found == ids_.end() ? *unknown : found->second);
  });
  return ids;
}

std::optional<std::int32_t> CharacterTokenizer::unknown_id() const {
  if (unknown_ == Unknown::refuse) return std::nullopt;
  return static_cast<std::int32_t>(characters_.size());
}

std::vector<std::int32_t> CharacterTokenizer::token_bytes(std::string_view text) const {
  std::vector<std::int32_t> bytes;
  for_each_code_point(text,
                      [&](std::uint32_t point) { bytes.push_back(static_cast<std::int32_t>(to_utf8(point).size())); });
  return bytes;
}

std::string CharacterTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const auto id : ids) text += id == unknown_id() ? "\uFFFD" : characters_.at(static_cast<std::size_t>(id));
  return text;
}

nlohmann::ordered_json CharacterTokenizer::to_json() const {
  nlohmann::ordered_json json = {{"kind", CharacterTokenizerOptions::kind}, {"characters", characters_}};
  if (unknown_ == Unknown::map) json["unknown"] = true;
  return json;
}

std::vector<std::int32_t> NumberTokenizer::encode(std::string_view text) const {
  constexpr std::string_view separators = ", \t\r\n";
  std::vector<std::int32_t> ids;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(separators), text.size()));
    if (text.empty()) return ids;
    const auto number = text.substr(0, text.find_first_of(separators));
    text.remove_prefix(number.size());
    const auto* end = number.data() + number.size();
    const auto [at, error] = std::from_chars(number.data(), end, ids.emplace_back());
    if (at != end || error == std::errc::invalid_argument) fail_data("{} is not a number", in_quotes(number));
    if (error == std::errc::result_out_of_range || ids.back() < 0 || ids.back() >= count_)
      fail_data("the number {} is not among 0 ... {}", in_quotes(number), count_ - 1);
  }
}

std::string NumberTokenizer::decode(std::span<const std::int32_t> ids) const {
  return fmt::format("{}", fmt::join(ids.begin(), ids.end(), token_separator()));
}

nlohmann::ordered_json NumberTokenizer::to_json() const { return {{"kind", kind}, {"count", count_}}; }

}  // namespace metaformer
