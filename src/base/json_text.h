#pragma once
// Parses JSON from untrusted files, and writes JSON whose strings may be any bytes, such as paths.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace metaformer {

constexpr int deepest_json = 64;  // dumping recurses, so depth must be bounded

// ordered_json compares every key with all previous keys of its object: this many comparisons take about a second, as
// for 20,000 keys in one object.
constexpr std::int64_t most_key_comparisons = 200'000'000;

// Returns a discarded value (is_discarded()) if the text is not JSON, nests deeper than `deepest_json`, or needs
// more than `most_comparisons` comparisons of keys. Throws only for lack of memory.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, std::int64_t most_comparisons = most_key_comparisons) {
  constexpr bool ordered = std::is_same_v<Json, nlohmann::ordered_json>;
  std::vector<std::int64_t> keys;  // of every object around the current position
  std::int64_t comparisons = 0;
  bool refused = false;
  const auto watch = [&](int depth, typename Json::parse_event_t event, Json&) {
    if (event == Json::parse_event_t::object_start) keys.push_back(0);
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty()) comparisons += keys.back()++;
    refused = refused || depth > deepest_json || (ordered && comparisons > most_comparisons);
    return !refused;  // values after a refusal are skipped, not kept
  };
  auto json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  return refused ? Json(Json::value_t::discarded) : json;
}

// Bytes that are not UTF-8 become U+FFFD, where dump() would throw. indent: spaces per level; -1: one line.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace metaformer
