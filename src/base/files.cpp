#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace metaformer {

bool fault_strikes(const char* point) {
  static const char* const plan = std::getenv("METAFORMER_FAULT");
  static const char* const colon = plan == nullptr ? nullptr : std::strchr(plan, ':');
  static long remaining = colon == nullptr ? 0 : std::atol(colon + 1);
  return colon != nullptr && std::string_view(plan, colon) == point && --remaining == 0;
}

void fault_point(const char* point) {
  if (fault_strikes(point)) ::raise(SIGKILL);
}

void stop_point(const char* point) {
  if (fault_strikes(point)) ::raise(SIGTERM);
}

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_with_errno(const std::string& action, const fs::path& path) {
  throw Error(ExitCode::failure, fmt::format("cannot {} {}: {}", action, path.string(), std::strerror(errno)));
}

void write_bytes(int descriptor, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("write", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
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
  int number() const { return fd_; }
  void close() {
    if (::close(std::exchange(fd_, -1)) != 0) fail_with_errno("close", path_);
  }

 private:
  fs::path path_;
  int fd_;
};

void sync(int descriptor, const fs::path& path) {
  if (::fsync(descriptor) != 0) fail_with_errno("sync", path);
}

void write_synced(const fs::path& path, std::string_view content, int flags) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, "create");
  fault_point("write");
  if (fault_strikes("full")) {
    errno = ENOSPC;
    fail_with_errno("write", path);
  }
  std::string damaged;
  if (fault_strikes("damage") && !content.empty()) {
    damaged = content;
    damaged[damaged.size() / 2] ^= 1;
    content = damaged;
  }
  write_bytes(file.number(), content, path);
  fault_point("sync");
  sync(file.number(), path);
  file.close();
}

constexpr std::string_view temporary_suffix = ".tmp";

}  // namespace

fs::path temporary_name(const fs::path& path) {
  return path.parent_path() / fmt::format(".{}.{}{}", path.filename().string(), ::getpid(), temporary_suffix);
}

std::string target_of_temporary(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(temporary_suffix)) return "";
  name.remove_prefix(1);
  name.remove_suffix(std::min(name.size(), temporary_suffix.size()));
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const auto process = name.substr(dot + 1);
  const bool is_number = !process.empty() && std::all_of(process.begin(), process.end(),
                                                         [](char digit) { return digit >= '0' && digit <= '9'; });
  return is_number ? std::string(name.substr(0, dot)) : "";
}

ExitCode code_of_errno(int error, ExitCode otherwise) {
  return error == ENOSPC || error == EDQUOT || error == EIO ? ExitCode::failure : otherwise;
}

bool holds(const fs::path& path, std::string_view bytes) {
  constexpr std::size_t chunk = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string read(std::min(chunk, bytes.size()), '\0');
  while (!bytes.empty()) {
    const auto count = std::min(chunk, bytes.size());
    file.read(read.data(), static_cast<std::streamsize>(count));
    if (!file || bytes.substr(0, count) != std::string_view(read).substr(0, count)) return false;
    bytes.remove_prefix(count);
  }
  return file && file.peek() == std::ifstream::traits_type::eof();
}

void exchange(const fs::path& first, const fs::path& second) {
  const bool supported = !fault_strikes("exchange");
  if (supported && ::renameat2(AT_FDCWD, first.c_str(), AT_FDCWD, second.c_str(), RENAME_EXCHANGE) == 0) return;
  if (supported && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) fail_with_errno("replace", second);
  auto replaced = second;
  replaced += replaced_suffix;
  if (::rename(second.c_str(), replaced.c_str()) != 0) fail_with_errno("replace", second);
  if (::rename(first.c_str(), second.c_str()) != 0) {
    const int error = errno;
    ::rename(replaced.c_str(), second.c_str());
    errno = error;
    fail_with_errno("replace", second);
  }
  if (::rename(replaced.c_str(), first.c_str()) != 0) fail_with_errno("rename", replaced);
}

std::string read_file(const fs::path& path, std::uintmax_t largest, ExitCode code) {
  std::error_code ignored;
  std::error_code problem;
  const auto status = fs::status(path, problem);
  if (problem == std::errc::permission_denied)
    throw Error(code, fmt::format("{}: cannot be read: {}", path.string(), problem.message()));
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

fs::path file_to_write(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw Error(ExitCode::usage, fmt::format("{}: not a regular file, so it is not replaced", path.string()));
  if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
  return fs::exists(status) ? fs::canonical(path) : path.parent_path() / fs::read_symlink(path);
}

int open_own_file(const fs::path& path, int flags) {
  // Without O_NONBLOCK a pipe in the file's place would be waited for.
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
  const int error = errno;
  struct stat status = {};
  const bool is_regular = descriptor >= 0 && ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (is_regular) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  const std::string reason = descriptor >= 0  ? "it is no regular file"
                             : error == ELOOP ? "it is a link, and files of a run are never written through one; "
                                                "remove it"
                                              : std::strerror(error);
  throw Error(descriptor >= 0 ? ExitCode::usage : code_of_errno(error, ExitCode::usage),
              fmt::format("cannot write {}: {}", path.string(), reason));
}

AppendedFile::AppendedFile(const fs::path& path) : path_(path), descriptor_(open_own_file(path, O_APPEND)) {}

AppendedFile::~AppendedFile() { ::close(descriptor_); }

void AppendedFile::write(std::string_view bytes) const { write_bytes(descriptor_, bytes, path_); }

void AppendedFile::sync() const { metaformer::sync(descriptor_, path_); }

void write_file_synced(const fs::path& path, std::string_view content) { write_synced(path, content, O_TRUNC); }

void write_file_atomically(const fs::path& path, std::string_view content) {
  const auto temporary = temporary_name(path);
  ::unlink(temporary.c_str());  // left by an earlier process with this number
  try {
    write_synced(temporary, content, O_EXCL);  // never through a link or into an existing file
    fault_point("rename");
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_with_errno("rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(path.parent_path().empty() ? fs::path(".") : path.parent_path());
}

void sync_folder(const fs::path& folder) {
  const Descriptor handle(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, "open");
  sync(handle.number(), folder);
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
