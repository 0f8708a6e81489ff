#pragma once
// A lock on a folder, so that two processes do not write into one run.

#include <filesystem>
#include <string>

namespace metaformer {

// Held as long as the object lives, and no longer than the process: the kernel gives it back whatever ends it. The file
// says who holds it, for messages alone.
class FileLock {
 public:
  // Throws Error (exit code 2, of a full disk 1) naming the holder's process and host when another process holds the
  // lock. The file of a holder that has died is taken over.
  explicit FileLock(const std::filesystem::path& file);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace metaformer
