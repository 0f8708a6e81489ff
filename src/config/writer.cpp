#include "config/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "config/yaml.h"

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

using Json = nlohmann::ordered_json;

namespace {

void write_yaml(const Json& section, int indent, std::string& out) {
  for (const auto& [key, value] : section.items()) {
    out += fmt::format("{:{}}{}:", "", indent, key);
    if (value.is_object() && value.size() == 1 && value.contains("kind")) {
      out += fmt::format(" {}\n", yaml_value(value.at("kind")));  // short for {kind: NAME}
    } else if (value.is_object()) {
      out += '\n';
      write_yaml(value, indent + 2, out);
    } else {
      out += fmt::format(" {}\n", yaml_value(value));
    }
  }
}

std::string type_name(const bool&) { return "true or false"; }
std::string type_name(const std::int64_t&) { return "integer"; }
std::string type_name(const double&) { return "number"; }
std::string type_name(const std::string&) { return "text"; }
std::string type_name(const PathText&) { return "path"; }
std::string type_name(const std::array<double, 2>&) { return "list of 2 numbers"; }
std::string type_name(const std::vector<std::string>&) { return "list of texts"; }
std::string type_name(const Choice& value) { return join_alternatives(value.names); }
std::string type_name(const TextValue& value) { return value.type; }
template <class T>
std::string type_name(const std::optional<T>&) {
  return type_name(T{}) + " or null";
}
template <class E>
requires std::is_enum_v<E> std::string type_name(const E&) { return join_alternatives(names_of<E>()); }

template <class Options>
KindHelp describe_kind(const Options&) {
  return {.name = std::string(Options::kind), .summary = std::string(Options::summary)};
}
KindHelp describe_kind(const MixerOptions& options) {
  return {.name = std::string(options.kind()), .summary = std::string(options.summary())};
}

class HelpCollector {
 public:
  HelpCollector(std::string prefix, std::vector<KindCondition> conditions, std::vector<FieldHelp>& fields)
      : prefix_(std::move(prefix)), conditions_(std::move(conditions)), fields_(fields) {}

  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    if constexpr (has_kinds<T>) {
      add(name, join_alternatives(kinds_of<T>()), std::string(kind_of(value)), help);
      visit_every_kind(value, [&](auto& options) { fields_.back().kinds.push_back(describe_kind(options)); });
      visit_every_kind(value,
                       [&](auto& options) { descend(name, prefix_ + name, describe_kind(options).name, options); });
    } else if constexpr (requires(HelpCollector & h) { visit(h, value); }) {
      HelpCollector inner(prefix_ + name + ".", conditions_, fields_);
      visit(inner, value);
    } else {
      add(name, type_name(value), yaml_value(to_value(value)), help);
    }
  }
  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char* help) {
    add(name, fmt::format("{}, {}", type_name(value), range.str()), yaml_value(to_value(value)), help);
  }
  template <class V, class Section>
  void section_of(const char* name, const char* owner, V& variant, const Section& section) {
    visit_every_kind(variant, [&](auto& options) {
      if constexpr (std::is_invocable_v<Section, decltype(options)>)
        descend(name, owner, describe_kind(options).name, section(options));
    });
  }

 private:
  void add(const std::string& name, std::string expected, std::string fallback, const char* help) {
    fields_.push_back({prefix_ + name, std::move(expected), std::move(fallback), help, {}, conditions_});
  }

  template <class T>
  void descend(const std::string& name, const std::string& owner, const std::string& kind, T& section) {
    auto conditions = conditions_;
    conditions.push_back({owner, {kind}});
    HelpCollector inner(prefix_ + name + ".", std::move(conditions), fields_);
    visit(inner, section);
  }

  std::string prefix_;
  std::vector<KindCondition> conditions_;
  std::vector<FieldHelp>& fields_;
};

// Where two differ in the kinds of one condition: joins them and returns true.
bool join(FieldHelp& field, const FieldHelp& other) {
  const auto& theirs = other.conditions;
  if (std::tie(field.path, field.expected, field.fallback, field.meaning) !=
          std::tie(other.path, other.expected, other.fallback, other.meaning) ||
      field.conditions.size() != theirs.size())
    return false;
  KindCondition* differing = nullptr;
  std::size_t at = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    if (field.conditions[i].section != theirs[i].section) return false;
    if (field.conditions[i].kinds == theirs[i].kinds) continue;
    if (differing != nullptr) return false;
    differing = &field.conditions[i];
    at = i;
  }
  if (differing != nullptr)
    differing->kinds.insert(differing->kinds.end(), theirs[at].kinds.begin(), theirs[at].kinds.end());
  return true;
}

// Joins one pair, the first there is.
bool join_one(std::vector<FieldHelp>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i)
    for (std::size_t j = i + 1; j < fields.size(); ++j)
      if (join(fields[i], fields[j])) {
        fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(j));
        return true;
      }
  return false;
}

// A condition that every kind meets is none.
void drop_empty_conditions(std::vector<FieldHelp>& fields) {
  std::map<std::string, std::size_t> kinds;
  for (const auto& field : fields)
    if (!field.kinds.empty()) kinds[field.path] = field.kinds.size();
  for (auto& field : fields)
    std::erase_if(field.conditions,
                  [&](const auto& condition) { return condition.kinds.size() == kinds[condition.section]; });
}

}  // namespace

Json config_to_json(const ExperimentConfig& config) {
  auto copy = config;  // visiting takes a mutable struct
  JsonWriter writer;
  visit(writer, copy);
  return std::move(writer.json);
}

std::string json_to_yaml(const Json& sections) {
  std::string yaml;
  write_yaml(sections, 0, yaml);
  return yaml;
}

std::string config_to_yaml(const ExperimentConfig& config) { return json_to_yaml(config_to_json(config)); }

std::vector<FieldHelp> explain_config() {
  ExperimentConfig defaults;
  std::vector<FieldHelp> fields;
  HelpCollector collector("", {}, fields);
  visit(collector, defaults);
  while (join_one(fields)) {  // a key that several kinds have with the same meaning is one entry
  }
  drop_empty_conditions(fields);
  return fields;
}

std::string applies_to(const FieldHelp& field) {
  std::string text;
  for (const auto& [section, kinds] : field.conditions)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", section, join_alternatives(kinds));
  return text;
}

}  // namespace metaformer
