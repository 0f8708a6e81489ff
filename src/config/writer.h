#pragma once
// A config as YAML and JSON, what it changes of the defaults, and its digest.

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/experiment_config.h"

namespace metaformer {

// A single value of a config as YAML.

// Of text, a number, true, false, null or a list of these: on one line, text quoted where YAML needs it.
std::string yaml_value(const nlohmann::ordered_json& value);

// Visitor that writes a config, or a section of one, as JSON.
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

// A config as text: complete, in the order of its fields, readable back to the same config.

nlohmann::ordered_json config_to_json(const ExperimentConfig& config);
std::string config_to_yaml(const ExperimentConfig& config);

// Sections of a config, or parts of them, as the files of users are written.
std::string json_to_yaml(const nlohmann::ordered_json& sections);

struct KindHelp {
  std::string name;
  std::string summary;
};

// `section` must be of one of `kinds`.
struct KindCondition {
  std::string section;
  std::vector<std::string> kinds;
};

// What `config explain` and the documentation show.
struct FieldHelp {
  std::string path;      // "model.mixer.constraint"; of what has kinds "model.mixer"
  std::string expected;  // "integer, at least 1", "fp32 or bf16"
  std::string fallback;  // the default
  std::string meaning;
  std::vector<KindHelp> kinds;            // that the key chooses from
  std::vector<KindCondition> conditions;  // for the key to exist, outermost first
};

// Every key once for each meaning or default that it has.
std::vector<FieldHelp> explain_config();

// "model: transformer, model.mixer: metric or quadratic"; "" where the key always exists.
std::string applies_to(const FieldHelp& field);

}  // namespace metaformer
