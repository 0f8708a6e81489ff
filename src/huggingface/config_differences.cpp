#include "huggingface/config_differences.h"

#include <fmt/format.h>

#include "config/changes.h"
#include "config/writer.h"

namespace metaformer {

namespace {

bool is_free(const std::string& key, const TransformerConfig& given, const TransformerConfig& needed) {
  if (key == "model.context") return !is<LearnedPositionsConfig>(needed.positions);
  if (key == "model.feed_forward.ratio") return given.hidden_width() == needed.hidden_width();
  return keeps_function(key);
}

}  // namespace

std::vector<std::string> config_differences(const TransformerConfig& given, const TransformerConfig& needed) {
  const auto values = flattened(config_to_json({.model = given}));
  std::vector<std::string> differences;
  for (const auto& [key, value] : flattened(config_to_json({.model = needed}))) {
    const auto found = values.find(key);  // an option of another kind may be missing
    if (key.starts_with("model.") && found != values.end() && found->second != value && !is_free(key, given, needed))
      differences.push_back(fmt::format("{} is {} and must be {}", key, found->second, value));
  }
  return differences;
}

}  // namespace metaformer
