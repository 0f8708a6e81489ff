#pragma once
// Errors of loading a config.

#include <string>
#include <vector>

#include "config/loader.h"
#include "config/writer.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

using Overrides = std::vector<std::string>;

inline Overrides joined(Overrides first, const Overrides& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// Overrides of a masked language model.
inline Overrides masked(const Overrides& more) { return joined({"task=masked_language_model"}, more); }

// Overrides of a classifier that reads regions of tokens.
inline Overrides pooled_and(const Overrides& more) {
  return joined({"task={kind: classification, head: max_pooled}",
                 "model={layers: 0, positions: none, embedding: {region: sequence}}"},
                more);
}

// Writes a.yaml. "": a file with a default value.
inline std::string write_config(const TemporaryFolder& folder, const std::string& yaml) {
  return folder.write("a.yaml", yaml.empty() ? "train: {seed: 1337}\n" : yaml).string();
}

// The message of the Error that loading a.yaml throws, without the folder; its exit code must be 2.
inline std::string complaint(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const TemporaryFolder folder;
  const auto path = write_config(folder, yaml);
  const auto [code, message] = failure([&] { load_experiment(path, overrides); });
  if (code == ExitCode::ok) return "accepted";
  CHECK(code == ExitCode::usage);
  const std::string prefix = folder.path().string() + "/";
  const auto at = message.find(prefix);
  return at == std::string::npos ? message : message.substr(0, at) + message.substr(at + prefix.size());
}

inline ExperimentConfig config_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const TemporaryFolder folder;
  return load_experiment(write_config(folder, yaml), overrides).config;
}

// A dump of the config loads as the same config and dumps as the same text.
inline void check_reads_back(const ExperimentConfig& config) {
  const auto again = config_of(config_to_yaml(config));
  CHECK(config_to_json(again) == config_to_json(config));
  CHECK(config_to_yaml(again) == config_to_yaml(config));
}

}  // namespace metaformer
