#pragma once
// config.json of a Hugging Face folder.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace metaformer {

// config.json of a Hugging Face folder. A key that is unknown and, by its name, may change what the model computes is
// an error; other unknown keys are ignored.
class ConfigFile {
 public:
  // `text`: the content; `source` names it in errors (exit code 3), which name the key and its value, too.
  ConfigFile(const std::string& text, std::string source);

  // Values that a model is made of. Without a fallback the key must be there; null counts as absent.
  std::int64_t count(const char* key, std::optional<std::int64_t> fallback = std::nullopt);  // above 0
  double number(const char* key, double fallback);
  bool flag(const char* key, bool fallback);
  std::string text(const char* key, std::optional<std::string> fallback = std::nullopt);

  nlohmann::json object(const char* key);  // {} without it

  // The only value, besides null, that this program's models have.
  void require(const char* key, const nlohmann::json& only);

  // Keys of this architecture that change nothing in evaluation, or repeat others.
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }

  // The keys that nobody asked for and that no configuration of the library has, which are ignored. Throws when one of
  // them may change what the model computes: its name has a word such as rope, norm or scale, and its value is not
  // null.
  std::vector<std::string> unknown_keys() const;

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  const nlohmann::json& value(const char* key);

  nlohmann::json json_;
  std::string source_;
  std::set<std::string> known_;
};

// "model.layers is 4 and must be 12": the keys in which `given` computes another function than `needed`. Keys that only
// concern training, speed or memory may differ, and the context where positions are not learned.
std::vector<std::string> config_differences(const TransformerConfig& given, const TransformerConfig& needed);

}  // namespace metaformer
