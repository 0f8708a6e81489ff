#include "config/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <vector>

#include "base/digest.h"
#include "base/json.h"
#include "base/text.h"
#include "config/yaml.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

// Whether YAML 1.1, which PyYAML reads, takes the unquoted word for a text, and not for a number, date, boolean or
// null.
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

// Writes a number with a decimal point, without which YAML 1.1 takes 1e-05 for a text and 1 for an integer.
std::string yaml_number(double value) {
  auto text = fmt::format("{}", value);
  if (text.find('.') != std::string::npos || !std::isfinite(value)) return text;
  return text.insert(std::min(text.find('e'), text.size()), ".0");
}

// Writes bytes that are not UTF-8 as \xff, and doubles backslashes.
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

template <class T>
Json to_json(const T* value) {
  return *value;
}
template <class T>
Json to_json(const std::optional<T>* value) {
  return *value ? to_json(&**value) : Json(nullptr);
}
Json to_json(const PathText* value) { return std::string(*value); }
Json to_json(const FreeText* value) { return std::string(*value); }
Json to_json(const Enumeration& value) { return value.names.at(value.get()); }
Json to_json(const TextForm& value) {
  std::int64_t number = 0;
  const auto text = value.write();
  return parse_whole_number(text, number) == WholeNumber::valid ? Json(number) : Json(text);
}

Json values_of(const std::vector<Field>& fields, const std::vector<Field>& defaults = {});

// The values of a list's items: all of them, or those that differ from the defaults.
Json values_of_items(const Kinds& list, const Kinds* usual) {
  auto items = Json::array();
  const auto sections = list.items();
  if (usual != nullptr) usual->resize(sections.size());
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto defaults = usual == nullptr ? std::vector<Field>{} : std::get<Section>(usual->items()[i].value).fields();
    items.push_back(values_of(std::get<Section>(sections[i].value).fields(), defaults));
  }
  return items;
}

// All values, or with `defaults` those that differ from them. A kind that is not the default one is selected in
// `defaults`, so that it is compared with its own defaults.
Json values_of(const std::vector<Field>& fields, const std::vector<Field>& defaults) {
  auto json = Json::object();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const Field::Value& value = fields[i].value;
    const auto* other = defaults.empty() ? nullptr : &defaults[i].value;
    auto inner = Json::object();
    const auto* kinds = std::get_if<Kinds>(&value);
    if (kinds != nullptr && kinds->is_list()) {
      inner = values_of_items(*kinds, other == nullptr ? nullptr : &std::get<Kinds>(*other));
    } else if (kinds != nullptr) {
      const auto* usual = other == nullptr ? nullptr : &std::get<Kinds>(*other);
      const auto kind = kinds->current();
      const bool is_other = usual == nullptr || usual->current() != kind;
      if (is_other) inner["kind"] = kind;
      if (is_other && usual != nullptr) usual->select(kind);
      inner.update(values_of(kinds->fields(), usual == nullptr ? std::vector<Field>{} : usual->fields()));
    } else if (const auto* section = std::get_if<Section>(&value)) {
      inner =
          values_of(section->fields(), other == nullptr ? std::vector<Field>{} : std::get<Section>(*other).fields());
    } else {
      inner = json_value(fields[i]);
      if (other != nullptr && inner == json_value(defaults[i])) continue;
    }
    if (!inner.is_object() || !inner.empty()) json[fields[i].name] = std::move(inner);
  }
  return json;
}

// Writes whole numbers without a decimal point, as people do, even if the key takes any number: 0, not 0.0.
std::string short_value(const Json& value) {
  constexpr double largest = 1e15;
  if (!value.is_number_float()) return yaml_value(value);
  const double number = value.get<double>();
  return number == std::trunc(number) && std::abs(number) < largest ? fmt::format("{:.0f}", number) : yaml_value(value);
}

void flatten(const Json& section, const std::string& prefix, std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : section.items())
    value.is_object() ? flatten(value, prefix + key + ".", values) : void(values[prefix + key] = short_value(value));
}

}  // namespace

Json json_value(const Field& field) {
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (requires { to_json(value); }) return to_json(value);
        throw std::logic_error("a section has no value");
      },
      field.value);
}

std::string yaml_value(const Json& value) {
  if (value.is_string()) return yaml_text(value.get<std::string>());
  if (value.is_number_float()) return yaml_number(value.get<double>());
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(yaml_value(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  if (value.is_object() && value.size() == 1 && value.contains("kind")) return yaml_value(value.at("kind"));
  if (value.is_object()) {
    std::vector<std::string> entries;
    for (const auto& [key, inner] : value.items()) entries.push_back(fmt::format("{}: {}", key, yaml_value(inner)));
    return fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
  return value.dump();
}

Json config_to_json(const ExperimentConfig& config) {
  auto copy = config;  // fields_of needs a mutable config
  auto json = values_of(fields_of(copy));
  if (config.train.epochs) json["train"].erase("steps");  // a config that names both is an error
  return json;
}

std::string json_to_yaml(const Json& sections) {
  std::string yaml;
  write_yaml(sections, 0, yaml);
  return yaml;
}

std::string config_to_yaml(const ExperimentConfig& config) { return json_to_yaml(config_to_json(config)); }

nlohmann::json config_changes(const ExperimentConfig& config) {
  // The sections `data` and `train` depend on the task and the model: their defaults are those of the chosen kinds.
  ExperimentConfig defaults;
  const std::string task(kind_of(defaults.task)), model(kind_of(defaults.model));
  defaults.task = *make_kind<TaskConfig>(kind_of(config.task));
  defaults.model = *make_kind<ModelConfig>(kind_of(config.model));
  set_embedding_scale(defaults.model, default_embedding_scale(config.model));
  defaults.train.cpu_slices = default_slices(config);
  auto copy = config;  // fields_of needs a mutable config
  // The part of the validation split that an evaluation sees does not change the training.
  if (auto* random = std::get_if<RandomEvaluationConfig>(&copy.train.evaluation))
    random->tokens = RandomEvaluationConfig{}.tokens;
  else
    copy.train.evaluation = EvaluationConfig{};
  if (copy.train.epochs) copy.train.steps = defaults.train.steps;
  nlohmann::json json = values_of(fields_of(copy), fields_of(defaults));
  if (kind_of(config.task) != task) json["task"]["kind"] = std::string(kind_of(config.task));
  if (kind_of(config.model) != model) json["model"]["kind"] = std::string(kind_of(config.model));
  return json;
}

std::string config_digest(const ExperimentConfig& config) {
  auto without_slices = config;
  without_slices.train.cpu_slices = default_slices(config);
  return sha256(json_text(config_changes(without_slices))).substr(0, 16);
}

std::map<std::string, std::string> flattened(const Json& config) {
  std::map<std::string, std::string> values;
  flatten(config, "", values);
  return values;
}

bool keeps_function(std::string_view key) {
  constexpr std::array<std::string_view, 10> keys = {
      "model.context",           "model.memory",          "model.dropout",
      "model.embedding.dropout", "model.embedding.std",   "model.carry_state",
      "model.mixer.backend",     "model.mixer.score_std", "model.feed_forward.chunks",
      "model.same_length"};
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace metaformer
