#pragma once
// The help of all keys, and suggestions for a key that does not exist.

#include <string>
#include <string_view>
#include <vector>

#include "config/schema.h"
#include "config/yaml.h"

namespace metaformer {

// `section` must be of one of `kinds`.
struct KindCondition {
  std::string section;
  std::vector<std::string> kinds;
  bool operator==(const KindCondition&) const = default;
};

// The help of a key, as `config explain` and the documentation show it.
struct FieldHelp {
  std::string path;      // "model.mixer.constraint"; "model.mixer" for a key with kinds
  std::string expected;  // "integer, at least 1", "fp32 or bf16"
  std::string fallback;  // the default
  std::string meaning;
  std::vector<std::string> choices;       // the names that the key takes; empty if it takes other values
  std::vector<KindHelp> kinds;            // the kinds that the key chooses from
  std::vector<KindCondition> conditions;  // all must hold for the key to exist; outermost first
  bool operator==(const FieldHelp&) const = default;
};

// The help of every key, with one entry for each meaning or default that the key has.
const std::vector<FieldHelp>& explain_config();

// "model: transformer, model.mixer: metric or quadratic"; "" where the key always exists.
std::string applies_to(const FieldHelp& field);

// The path of the key with this name ("weight_decay"), the least nested of several, or of the key that nanoGPT or
// Hugging Face call so ("lr", "num_hidden_layers"); "" if there is none.
std::string full_key(std::string_view name);

// "; did you mean 'train.learning_rate'?" for the unknown key `path` in a section with the keys `known`. Suggests the
// result of full_key, else the nearest name in the section, else the nearest name anywhere; "" if none is near. For a
// key of another program that has no counterpart it gives the reason.
std::string suggest_key(const std::string& path, const std::vector<std::string>& known);

// "; did you mean 'rotary'?" for an unknown value of a key that takes the values `known`: our name of what other
// programs call `given` ("rope"), else the nearest of `known`; "" if none is near.
std::string suggest_value(const std::string& given, const std::vector<std::string>& known);

// Throws an Error (exit code 2) with the place, the key and its likely correction. `context`: " for kind 'metric'" or
// "".
[[noreturn]] void refuse_unknown_key(const ConfigKey& key, const std::string& path, const std::string& context,
                                     const std::vector<std::string>& known);

}  // namespace metaformer
