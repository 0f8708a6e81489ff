#pragma once
// Environment variables, and a separate cache folder for files that the program keeps between runs.

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

// Sets an environment variable during its lifetime; nullptr unsets it.
class Variable {
 public:
  Variable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    value != nullptr ? ::setenv(name_.c_str(), value, 1) : ::unsetenv(name_.c_str());
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? ::setenv(name_.c_str(), before_->c_str(), 1) : ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
  std::optional<std::string> before_;
};

// A separate cache folder during its lifetime.
class OwnCache {
 public:
  const TemporaryFolder& folder() const { return folder_; }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> files;
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path(), none))
      if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
  }

 private:
  TemporaryFolder folder_;
  Variable variable_{"XDG_CACHE_HOME", folder_.path().c_str()};
};
