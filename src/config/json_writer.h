#pragma once
// Visitor that writes a config, or a section of one, as JSON.

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/whole_number.h"
#include "config/experiment_config.h"

namespace metaformer {

inline nlohmann::ordered_json to_value(bool value) { return value; }
inline nlohmann::ordered_json to_value(std::int64_t value) { return value; }
inline nlohmann::ordered_json to_value(double value) { return value; }
inline nlohmann::ordered_json to_value(const std::string& value) { return value; }
inline nlohmann::ordered_json to_value(const std::array<double, 2>& value) { return value; }
inline nlohmann::ordered_json to_value(const std::vector<std::string>& value) { return value; }
inline nlohmann::ordered_json to_value(const Choice& value) { return value.names.at(value.index); }
inline nlohmann::ordered_json to_value(const TextValue& value) {
  std::int64_t number = 0;
  if (parse_whole_number(value.text, number) == WholeNumber::valid) return number;
  return value.text;
}
template <class T>
nlohmann::ordered_json to_value(const std::optional<T>& value) {
  return value ? to_value(*value) : nlohmann::ordered_json(nullptr);
}
template <class E>
requires std::is_enum_v<E> nlohmann::ordered_json to_value(E value) { return std::string(to_string(value)); }

class JsonWriter {
 public:
  template <class T>
  void operator()(const char* name, T& value, const char*) {
    if constexpr (has_kinds<T>) {
      JsonWriter inner;
      inner.json["kind"] = std::string(kind_of(value));
      visit_kind(value, [&](auto& options) { visit(inner, options); });
      json[name] = std::move(inner.json);
    } else if constexpr (requires(JsonWriter & w) { visit(w, value); }) {
      JsonWriter inner;
      visit(inner, value);
      json[name] = std::move(inner.json);
    } else {
      json[name] = to_value(value);
    }
  }
  template <class T>
  void operator()(const char* name, T& value, const Range&, const char* help) {
    (*this)(name, value, help);
  }
  template <class V, class Section>
  void section_of(const char* name, const char*, V& variant, const Section& section) {
    visit_section_of(variant, section, [&](auto& value) { (*this)(name, value, ""); });
  }

  nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

}  // namespace metaformer
