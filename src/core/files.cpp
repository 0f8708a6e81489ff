#include "core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/fault.h"
#include "core/text.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_with_errno(const std::string& action, const fs::path& path) {
  throw Error(ExitCode::failure, fmt::format("cannot {} {}: {}", action, path.string(), std::strerror(errno)));
}

// Owns a file descriptor; close errors matter for written files, so they are reported by close().
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, const char* action)
      : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0) fail_with_errno(action, path);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  void write_all(std::string_view bytes) {
    if (fault_strikes("full")) {
      errno = ENOSPC;
      fail_with_errno("write", path_);
    }
    while (!bytes.empty()) {
      const auto written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_with_errno("write", path_);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail_with_errno("sync", path_);
  }
  void close() {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail_with_errno("close", path_);
  }

 private:
  fs::path path_;
  int fd_;
};

fs::path temporary_name(const fs::path& path) {
  return path.parent_path() / fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid());
}

}  // namespace

std::string read_file(const fs::path& path, std::uintmax_t largest, ExitCode code) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  if (!fs::exists(status)) throw Error(code, fmt::format("{}: no such file", path.string()));
  if (!fs::is_regular_file(status)) throw Error(code, fmt::format("{}: not a regular file", path.string()));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(code, fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  const auto size = fs::file_size(path, ignored);
  if (size > largest)
    throw Error(code, fmt::format("{}: {} is larger than the {} allowed", path.string(), human_bytes(size),
                                  human_bytes(largest)));
  std::string content(size, '\0');
  stream.read(content.data(), static_cast<std::streamsize>(size));
  if (stream.gcount() != static_cast<std::streamsize>(size))
    throw Error(code, fmt::format("{}: could not be read to its end", path.string()));
  return content;
}

void write_file_synced(const fs::path& path, std::string_view content) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, "create");
  fault_point("write");
  file.write_all(content);
  fault_point("sync");
  file.sync();
  file.close();
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const auto temporary = temporary_name(path);
  try {
    write_file_synced(temporary, content);
    fault_point("rename");
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_with_errno("rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.parent_path().empty() ? fs::path(".") : path.parent_path());
}

void sync_file(const fs::path& path) {
  Descriptor file(path, O_RDONLY | O_CLOEXEC, "open");
  file.sync();
}

void sync_folder(const fs::path& folder) {
  Descriptor handle(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, "open");
  handle.sync();
}

void replace_symlink(const fs::path& target, const fs::path& link) {
  const auto temporary = temporary_name(link);
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) fail_with_errno("make the link", temporary);
  fault_point("link");
  if (::rename(temporary.c_str(), link.c_str()) != 0) fail_with_errno("replace the link", link);
  sync_folder(link.parent_path());
}

}  // namespace metaformer
