#include "base/file_lock.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace metaformer {

namespace {

std::string read_holder(int descriptor) {
  std::array<char, 200> text{};
  const auto count = ::pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

// Whether the descriptor's file still has that name: its last holder may have removed it in the meantime.
bool is_same_file(int descriptor, const std::filesystem::path& file) {
  struct stat open_file = {}, named_file = {};
  return ::fstat(descriptor, &open_file) == 0 && ::lstat(file.c_str(), &named_file) == 0 &&
         open_file.st_ino == named_file.st_ino && open_file.st_dev == named_file.st_dev;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file) : file_(file) {
  while (true) {
    if (fault_strikes("full"))
      throw Error(ExitCode::failure, fmt::format("cannot write {}: {}", file.string(), std::strerror(ENOSPC)));
    descriptor_ = open_own_file(file);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        log::warning("{}: this file system has no locks ({}); start no second process on it", file.string(),
                     std::strerror(errno));
        break;
      }
      const auto holder = read_holder(descriptor_);
      ::close(descriptor_);
      throw Error(ExitCode::usage,
                  fmt::format("{} is in use by {}; wait for it, or stop it first", file.parent_path().string(),
                              holder.empty() ? "another process" : holder));
    }
    if (is_same_file(descriptor_, file)) break;
    ::close(descriptor_);
  }
  if (const auto earlier = read_holder(descriptor_); !earlier.empty())
    log::info("{} was left locked by {}, which is gone", file.parent_path().string(), in_quotes(earlier));
  const auto text = this_process();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) < 0)
    log::warning("{}: cannot be written: {}", file.string(), std::strerror(errno));
}

FileLock::~FileLock() {
  ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace metaformer
