#pragma once
// What loading a config complains of.

#include <string>
#include <vector>

#include "config/loader.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

// The message of the Error that loading a.yaml throws, without the folder; its exit code must be 2.
inline std::string complaint(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.yaml", yaml);
  const auto [code, message] = failure([&] { load_experiment(path.string(), overrides); });
  if (code == ExitCode::ok) return "accepted";
  CHECK(code == ExitCode::usage);
  const std::string prefix = folder.path().string() + "/";
  const auto at = message.find(prefix);
  return at == std::string::npos ? message : message.substr(0, at) + message.substr(at + prefix.size());
}

inline ExperimentConfig config_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const TemporaryFolder folder;
  return load_experiment(folder.write("a.yaml", yaml).string(), overrides).config;
}

}  // namespace metaformer
