#pragma once
// A lock on a folder, so that two processes do not write into one run.

#include <filesystem>
#include <optional>
#include <string>

namespace metaformer {

// How a lock treats another process that holds it.
enum class WhenHeld { fail, wait };

// Held while the object exists. The kernel releases the lock when the process ends, however it ends. The file contains
// the holder's process and host, only for messages.
class FileLock {
 public:
  // If another process holds the lock, waits for it, or throws Error (exit code 2) with its number and host. Takes over
  // the file of a dead process. Errors (exit code 1): a full disk. Throws Interrupted when a signal asks to stop.
  explicit FileLock(const std::filesystem::path& file, WhenHeld when_held = WhenHeld::fail);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

// The process that holds the lock, "process 12 on host"; nothing if no living process holds it. Neither waits nor
// changes the file; for some microseconds it holds the lock of a dead process. If the file system has no locks, every
// lock file counts as held.
std::optional<std::string> lock_holder(const std::filesystem::path& file);

}  // namespace metaformer
