#include "config/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "config/experiment_config.h"
#include "config/writer.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

// YAML reads 1 and true, which may be the names of a column or a file, as other types.
Json text_schema(const Json& more = Json::object()) {
  Json schema = {{"type", {"string", "number", "boolean"}}};
  schema.update(more);
  return schema;
}
const Json not_empty = {{"minLength", 1}};

Json plain_schema(const bool*) { return {{"type", "boolean"}}; }
Json plain_schema(const std::int64_t*) { return {{"type", "integer"}}; }
Json plain_schema(const double*) { return {{"type", "number"}}; }
Json plain_schema(const std::string*) { return text_schema(not_empty); }
Json plain_schema(const PathText*) { return text_schema(not_empty); }
Json plain_schema(const FreeText*) { return text_schema(); }
Json plain_schema(const std::array<double, 2>*) {
  return {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
}
Json plain_schema(const std::vector<std::string>*) { return {{"type", "array"}, {"items", text_schema(not_empty)}}; }
template <class T>
Json plain_schema(const std::optional<T>*) {
  auto schema = plain_schema(static_cast<const T*>(nullptr));
  auto types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
  types.push_back("null");
  schema["type"] = types;
  return schema;
}
Json plain_schema(const Enumeration& value) { return {{"enum", value.names}}; }
Json plain_schema(const TextForm& value) {
  Json number = {{"type", "integer"}, {"minimum", value.fewest}};
  if (value.step > 1) number["multipleOf"] = value.step;
  return {{"anyOf", Json::array({Json{{"const", value.word}}, number})}};
}

void add_range(const Range& range, Json& schema) {
  auto& number = schema.contains("items") ? schema["items"] : schema;
  if (std::isfinite(range.low)) number[range.low_open ? "exclusiveMinimum" : "minimum"] = short_number(range.low);
  if (std::isfinite(range.high)) number[range.high_open ? "exclusiveMaximum" : "maximum"] = short_number(range.high);
}

// The schema of a list's items beyond their type, for keys whose entries are "NAME=NUMBER".
bool is_assignment_list(const std::string& path) { return path == "data.mixture" || path == "train.rate_factors"; }

// A key that is neither a section nor has kinds.
Json value_schema(const Field& field, const std::string& path) {
  Json schema = {{"description", field.help}};
  schema.update(std::visit(
      [](const auto& value) -> Json {
        if constexpr (requires { plain_schema(value); }) return plain_schema(value);
        throw std::logic_error("a section has no value");
      },
      field.value));
  if (field.range) add_range(*field.range, schema);
  if (is_assignment_list(path)) schema["items"]["pattern"] = "^.+=[0-9.]+([eE][+-]?[0-9]+)?$";
  const auto usual = json_value(field);
  const bool is_missing = usual == "" && !std::holds_alternative<FreeText*>(field.value);  // it must be given
  if (!is_missing) schema["default"] = usual.is_number_float() ? short_number(usual.get<double>()) : usual;
  return schema;
}

Json section_schema(const Json& properties) {
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

// The parts of a schema that decide about a value.
Json without_notes(Json schema) {
  schema.erase("description");
  schema.erase("default");
  return schema;
}

// One schema that allows all of several: of a key that several kinds have. Descriptions and defaults that differ are
// left out.
Json any_of(const std::vector<Json>& schemas) {
  auto joined = schemas.front();
  auto alternatives = Json::array();
  for (const auto& schema : schemas) {
    for (const auto* note : {"description", "default"})
      if (joined.value(note, Json()) != schema.value(note, Json())) joined.erase(note);
    const auto form = without_notes(schema);
    if (std::ranges::find(alternatives, form) == alternatives.end()) alternatives.push_back(form);
  }
  if (alternatives.size() == 1) return joined;
  Json schema = {{"anyOf", alternatives}};
  for (const auto* note : {"description", "default"})
    if (joined.contains(note)) schema[note] = joined[note];
  return schema;
}

// The properties that any of several sections has.
Json all_properties(const std::vector<Json>& sections) {
  std::vector<std::string> names;
  for (const auto& section : sections)
    for (const auto& [name, schema] : section.items())
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  auto all = Json::object();
  for (const auto& name : names) {
    std::vector<Json> schemas;
    for (const auto& section : sections)
      if (section.contains(name)) schemas.push_back(section[name]);
    all[name] = any_of(schemas);
  }
  return all;
}

// Whether `section` names one of `kinds`: `task: sort` or `task: {kind: sort}`.
Json names_kind(const std::string& section, const std::vector<std::string>& kinds) {
  const Json names = {{"enum", kinds}};
  const Json in_section = {{"type", "object"}, {"required", {"kind"}}, {"properties", {{"kind", names}}}};
  return {{"required", {section}}, {"properties", {{section, {{"anyOf", Json::array({names, in_section})}}}}}};
}

// Collects the schemas of sections and kinds, each of which is written once and referred to by name.
class SchemaWriter {
 public:
  Json write(const std::vector<Field>& fields) {
    const Json names = {{"type", "array"}, {"items", text_schema(not_empty)}};
    Json properties = {
        {"base",
         {{"description", "config whose values come before those of this file, or a list of such configs"},
          {"anyOf", Json::array({text_schema(not_empty), names})}}}};
    auto rules = Json::array();
    for (const auto& field : fields) {
      const auto* section = std::get_if<Section>(&field.value);
      if (section == nullptr) {
        properties[field.name] = property(field, field.name);
        continue;
      }
      properties[field.name] = {{"description", "the keys depend on " + section->owner}, {"type", "object"}};
      const auto owner = std::ranges::find(fields, section->owner, &Field::name);
      add_rules(field.name, *section, *owner, rules);
    }
    Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                   {"title", "metaformer config"},
                   {"description", "written by `metaformer config schema`"}};
    schema.update(section_schema(properties));
    schema["allOf"] = rules;
    schema["definitions"] = definitions_;
    return schema;
  }

 private:
  // A reference to the schema, under this name or a similar one.
  Json define(const std::string& name, const Json& schema) {
    auto unused = name;
    for (int count = 2; definitions_.contains(unused) && definitions_[unused] != schema; ++count)
      unused = fmt::format("{}.{}", name, count);
    for (const auto& [other, known] : definitions_.items())
      if (known == schema) unused = other;
    definitions_[unused] = schema;
    return {{"$ref", "#/definitions/" + unused}};
  }

  // A section or kinds are a reference, beside which draft 7 ignores other keys.
  Json property(const Field& field, const std::string& path) {
    const auto* section = std::get_if<Section>(&field.value);
    const auto* kinds = std::get_if<Kinds>(&field.value);
    if (section == nullptr && kinds == nullptr) return value_schema(field, path);
    auto schema = Json::object();
    if (!field.help.empty()) schema["description"] = field.help;
    const auto reference = section != nullptr ? define(path, section_schema(properties(section->fields(), path)))
                           : kinds->resize    ? with_lists(*kinds, path)
                                              : one_kind(*kinds, path);
    schema["allOf"] = Json::array({reference});
    if (kinds != nullptr) schema["default"] = kinds->current();
    return schema;
  }

  Json properties(const std::vector<Field>& fields, const std::string& path) {
    auto all = Json::object();
    for (const auto& field : fields) all[field.name] = property(field, path + "." + field.name);
    return all;
  }

  // The name of a kind: `metric`.
  static Json kind_name(const Kinds& kinds) {
    std::vector<std::string> summaries;
    for (const auto& kind : kinds.kinds) summaries.push_back(kind.summary);
    return {{"enum", kinds.names()}, {"enumDescriptions", summaries}};
  }

  // A kind with its options: `{kind: metric, score: distance}`.
  Json kind_with_options(const Kinds& kinds, const std::string& path) {
    std::vector<Json> sections;
    auto rules = Json::array();
    const auto chosen = kinds.current();
    for (const auto& [name, summary] : kinds.kinds) {
      kinds.select(name);
      sections.push_back(properties(kinds.fields(), path));
      Json options = {{"kind", {{"description", summary}, {"const", name}}}};
      options.update(sections.back());
      const Json is_chosen = {{"required", {"kind"}}, {"properties", {{"kind", {{"const", name}}}}}};
      rules.push_back({{"if", is_chosen}, {"then", define(path + "." + name, section_schema(options))}});
    }
    kinds.select(chosen);
    const Json any = define(path + ".any", section_schema(all_properties(sections)));
    rules.push_back({{"if", {{"required", {"kind"}}}}, {"else", any}});
    const Json schema = {{"type", "object"}, {"properties", {{"kind", kind_name(kinds)}}}, {"allOf", rules}};
    return define(path + ".options", schema);
  }

  Json one_kind(const Kinds& kinds, const std::string& path) {
    return define(path, {{"anyOf", Json::array({kind_name(kinds), kind_with_options(kinds, path)})}});
  }

  // One kind, a list of items, or both forms of options of a list's items:
  // `{kind: [mamba2, metric], 1: {layers: 2}}`, and `{1: {layers: 2}}` if a base has the list.
  Json with_lists(const Kinds& kinds, const std::string& path) {
    const auto one = kind_with_options(kinds, path);
    kinds.resize(1);
    const auto items = kinds.items();
    const auto section =
        define(path + ".item", section_schema(properties(std::get<Section>(items[0].value).fields(), path)));
    kinds.resize(0);
    const Json item_section = {{"type", "object"}, {"if", {{"required", {"kind"}}}}, {"then", one}, {"else", section}};
    const Json list = define(
        path + ".list",
        {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", Json::array({kind_name(kinds), item_section})}}}});
    const Json has_list = {{"required", {"kind"}}, {"properties", {{"kind", {{"type", "array"}}}}}};
    const Json has_items = {{"minProperties", 1}, {"propertyNames", {{"pattern", "^[0-9]+$"}}}};
    Json options = section_schema({{"kind", list}});
    options["patternProperties"] = {{"^[0-9]+$", section}};
    const Json in_section = {
        {"type", "object"}, {"if", {{"anyOf", Json::array({has_list, has_items})}}}, {"then", options}, {"else", one}};
    return define(path + ".or_list", {{"anyOf", Json::array({kind_name(kinds), in_section, list})}});
  }

  // A section whose keys depend on the kind of another section: `data` on `task`. Kinds with the same keys share a
  // rule.
  void add_rules(const std::string& name, const Section& section, const Field& owner, Json& rules) {
    const auto& kinds = std::get<Kinds>(owner.value);
    const auto chosen = kinds.current();
    std::vector<Json> sections;
    std::vector<std::pair<Json, std::vector<std::string>>> kinds_by_schema;
    for (const auto& kind : kinds.names()) {
      kinds.select(kind);
      sections.push_back(properties(section.fields(), name));
      const auto schema =
          sections.back().empty() ? Json(false) : define(name + "." + kind, section_schema(sections.back()));
      const auto known = std::ranges::find(kinds_by_schema, schema, [](const auto& entry) { return entry.first; });
      if (known == kinds_by_schema.end())
        kinds_by_schema.emplace_back(schema, std::vector{kind});
      else
        known->second.push_back(kind);
    }
    kinds.select(chosen);
    for (const auto& [schema, names] : kinds_by_schema)
      rules.push_back({{"if", names_kind(owner.name, names)}, {"then", {{"properties", {{name, schema}}}}}});
    const auto any = define(name + ".any", section_schema(all_properties(sections)));
    rules.push_back({{"if", names_kind(owner.name, kinds.names())}, {"else", {{"properties", {{name, any}}}}}});
  }

  Json definitions_ = Json::object();
};

}  // namespace

Json config_schema() {
  ExperimentConfig defaults;
  return SchemaWriter().write(fields_of(defaults));
}

}  // namespace metaformer
