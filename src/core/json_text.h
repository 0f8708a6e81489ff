#pragma once
// JSON from files that may be damaged or hostile, and JSON as text from whatever strings (a path is any bytes).

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

namespace metaformer {

constexpr int deepest_json = 64;  // dumping recurses, so depth must be bounded

constexpr int most_ordered_keys = 20'000;  // ordered_json looks every key up among all before it

// A discarded value (is_discarded()) when the text is not JSON, nests deeper than `deepest_json`, or has more keys than
// `most_ordered_keys` for ordered_json. Never throws but for lack of memory.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  constexpr bool ordered = std::is_same_v<Json, nlohmann::ordered_json>;
  int keys = 0;
  bool refused = false;
  const auto watch = [&](int depth, typename Json::parse_event_t event, Json&) {
    keys += event == Json::parse_event_t::key;
    refused = refused || depth > deepest_json || (ordered && keys > most_ordered_keys);
    return !refused;  // what is refused is skipped, not kept
  };
  auto json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  return refused ? Json(Json::value_t::discarded) : json;
}

// What is not UTF-8 becomes U+FFFD, where dump() would throw. indent: spaces a level; -1: all on one line.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace metaformer
