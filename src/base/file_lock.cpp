#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"

namespace metaformer {

namespace {

std::string read_holder(int descriptor) {
  std::array<char, 200> text{};
  const auto count = ::pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

std::string name_of_holder(int descriptor) {
  const auto holder = read_holder(descriptor);
  return holder.empty() ? "another process" : holder;
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

FileLock::FileLock(const std::filesystem::path& file, WhenHeld when_held) : file_(file) {
  for (bool has_waited = false;;) {
    if (fault_strikes("full"))
      throw Error(ExitCode::failure, fmt::format("cannot write {}: {}", file.string(), std::strerror(ENOSPC)));
    descriptor_ = open_own_file(file);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        log::warning("{}: this file system has no locks ({}); start no second process on it", file.string(),
                     std::strerror(errno));
        break;
      }
      const auto name = name_of_holder(descriptor_);
      ::close(descriptor_);
      if (when_held == WhenHeld::fail)
        throw Error(ExitCode::usage, fmt::format("{} is in use by {}; wait for it, or stop it first",
                                                 file.parent_path().string(), name));
      if (!std::exchange(has_waited, true))
        log::info("waiting for {}, which writes {}", name, file.parent_path().string());
      throw_if_stopped();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
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

std::optional<std::string> lock_holder(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  const OpenFile opened(file, descriptor);
  if (::flock(descriptor, LOCK_SH | LOCK_NB) == 0) return std::nullopt;  // the file of a dead process
  return name_of_holder(descriptor);
}

}  // namespace metaformer
