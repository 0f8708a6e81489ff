#include "config/writer.h"

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "config/tree.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

Json to_value(bool value) { return value; }
Json to_value(std::int64_t value) { return value; }
Json to_value(double value) { return value; }
Json to_value(const std::string& value) { return value; }
Json to_value(const std::array<double, 2>& value) { return value; }
Json to_value(const PoolingWindow& value) { return value.all() ? Json("all") : Json(value.tokens); }
template <class T>
Json to_value(const std::optional<T>& value) {
  return value ? to_value(*value) : Json(nullptr);
}
template <class E>
requires std::is_enum_v<E> Json to_value(E value) { return std::string(to_string(value)); }

class JsonWriter {
 public:
  template <class T>
  void operator()(const char* name, T& value, const char*) {
    if constexpr (is_variant<T>) {
      JsonWriter inner;
      inner.json["kind"] = std::string(kind_of(value));
      std::visit([&](auto& options) { visit(inner, options); }, value);
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

  Json json = Json::object();
};

bool is_plain_word(const std::string& text) {
  const bool harmless = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  });
  return harmless && std::isalnum(static_cast<unsigned char>(text.empty() ? ' ' : text[0])) && text != "null" &&
         text != "Null" && text != "NULL";
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

std::string yaml_scalar(const Json& value) {
  if (value.is_string()) return yaml_text(value.get<std::string>());
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(yaml_scalar(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  return value.dump();
}

void write_yaml(const Json& section, int indent, std::string& out) {
  for (const auto& [key, value] : section.items()) {
    out += fmt::format("{:{}}{}:", "", indent, key);
    if (value.is_object()) {
      out += '\n';
      write_yaml(value, indent + 2, out);
    } else {
      out += fmt::format(" {}\n", yaml_scalar(value));
    }
  }
}

std::string type_name(const bool&) { return "true or false"; }
std::string type_name(const std::int64_t&) { return "integer"; }
std::string type_name(const double&) { return "number"; }
std::string type_name(const std::string&) { return "text"; }
std::string type_name(const std::array<double, 2>&) { return "list of 2 numbers"; }
std::string type_name(const PoolingWindow&) { return "integer, at least 1, or all"; }
template <class T>
std::string type_name(const std::optional<T>&) {
  return type_name(T{}) + " or null";
}
template <class E>
requires std::is_enum_v<E> std::string type_name(const E&) { return join_alternatives(names_of<E>()); }

class HelpCollector {
 public:
  HelpCollector(std::string prefix, std::string applies, std::vector<FieldHelp>& fields)
      : prefix_(std::move(prefix)), applies_(std::move(applies)), fields_(fields) {}

  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    if constexpr (is_variant<T>) {
      add(name + std::string(".kind"), join_alternatives(kinds_of<T>()), std::string(kind_of(value)), help);
      descend_kinds(name, value);
    } else if constexpr (requires(HelpCollector & h) { visit(h, value); }) {
      HelpCollector inner(prefix_ + name + ".", applies_, fields_);
      visit(inner, value);
    } else {
      add(name, type_name(value), yaml_scalar(to_value(value)), help);
    }
  }
  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char* help) {
    add(name, fmt::format("{}, {}", type_name(value), range.str()), yaml_scalar(to_value(value)), help);
  }

 private:
  void add(const std::string& name, std::string expected, std::string fallback, const char* help) {
    fields_.push_back({prefix_ + name, applies_, std::move(expected), std::move(fallback), help});
  }

  template <class... Options>
  void descend_kinds(const std::string& name, std::variant<Options...>&) {
    (descend_kind<Options>(name), ...);
  }
  template <class Options>
  void descend_kind(const std::string& name) {
    Options options;
    HelpCollector inner(prefix_ + name + ".", fmt::format("kind: {}", Options::kind), fields_);
    visit(inner, options);
  }

  std::string prefix_;
  std::string applies_;
  std::vector<FieldHelp>& fields_;
};

}  // namespace

Json config_to_json(const ExperimentConfig& config) {
  auto copy = config;  // visiting takes a mutable struct
  JsonWriter writer;
  visit(writer, copy);
  return std::move(writer.json);
}

std::string config_to_yaml(const ExperimentConfig& config) {
  std::string text;
  write_yaml(config_to_json(config), 0, text);
  return text;
}

std::vector<FieldHelp> explain_config() {
  ExperimentConfig defaults;
  std::vector<FieldHelp> fields;
  HelpCollector collector("", "", fields);
  visit(collector, defaults);
  return fields;
}

}  // namespace metaformer
