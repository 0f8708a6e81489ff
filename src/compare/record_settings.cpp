#include "compare/record_settings.h"

#include <vector>

#include "base/error.h"
#include "config/changes.h"
#include "config/writer.h"
#include "config_reader/loader.h"

namespace metaformer {

namespace {

std::map<std::string, std::string> without_seed(std::map<std::string, std::string> settings) {
  settings.erase("train.seed");
  return settings;
}

}  // namespace

std::map<std::string, std::string> changed_settings(const ExperimentConfig& config) {
  return without_seed(flattened(config_changes(config)));
}

std::map<std::string, std::string> all_settings(const std::map<std::string, std::string>& changed) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : changed) overrides.push_back(key + "=" + value);
  try {
    return without_seed(flattened(config_to_json(default_experiment(overrides).config)));
  } catch (const Error&) {
    return changed;  // of another version
  }
}

}  // namespace metaformer
