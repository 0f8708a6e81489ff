#include "base/cache_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

#include "base/log.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

// An absolute path, as the XDG Base Directory Specification requires.
std::optional<fs::path> folder_of_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || !fs::path(value).is_absolute()) return std::nullopt;
  return fs::path(value);
}

std::optional<fs::path> cache_in_home() {
  if (const auto cache = folder_of_environment("XDG_CACHE_HOME")) return *cache / "metaformer";
  if (const auto home = folder_of_environment("HOME")) return *home / ".cache" / "metaformer";
  return std::nullopt;
}

// The reason why others may have written to the folder, or "". Its parents may belong to the system.
std::string distrust(const fs::path& folder, bool must_be_own) {
  struct stat status;
  if (::stat(folder.c_str(), &status) != 0) return "";
  const auto user = ::geteuid();
  if (status.st_uid != user && (must_be_own || status.st_uid != 0))
    return fmt::format("belongs to user {}, not to user {}, who runs this", status.st_uid, user);
  const bool is_sticky = (status.st_mode & S_ISVTX) != 0;
  if ((status.st_mode & S_IWOTH) != 0 && (must_be_own || !is_sticky)) return "everybody may write to it";
  return "";
}

void warn_once(const std::string& message) {
  static std::set<std::string> said;
  if (said.insert(message).second) log::warning("{}", message);
}

}  // namespace

std::optional<fs::path> cache_folder() {
  const auto folder = cache_in_home();
  if (!folder) {
    warn_once("neither HOME nor XDG_CACHE_HOME names a folder: nothing is kept between runs, and no cache is read");
    return std::nullopt;
  }
  for (const auto& path : {*folder, folder->parent_path()})
    if (const auto why = distrust(path, path == *folder); !why.empty()) {
      warn_once(fmt::format("{}: {}: nothing is kept there, and nothing there is used", path.string(), why));
      return std::nullopt;
    }
  return folder;
}

}  // namespace metaformer
