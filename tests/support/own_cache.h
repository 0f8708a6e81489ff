#pragma once
// A cache folder of its own for as long as it lives: files that the program keeps between runs.

#include <cstdlib>
#include <optional>
#include <vector>

#include "support/temporary_folder.h"

class OwnCache {
 public:
  OwnCache() {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;
  ~OwnCache() { before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME"); }

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
  std::optional<std::string> before_;
};
