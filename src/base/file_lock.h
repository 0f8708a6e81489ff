#pragma once
// A lock on a folder, so that two processes do not write into one run.

#include <filesystem>
#include <string>

namespace metaformer {

// Held while the object exists. The kernel releases the lock when the process ends, however it ends. The file contains
// the holder's process and host, only for messages.
class FileLock {
 public:
  // Throws Error (exit code 2, for a full disk 1) with the holder's process and host if another process holds the
  // lock. Takes over the file of a dead process.
  explicit FileLock(const std::filesystem::path& file);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace metaformer
