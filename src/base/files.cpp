#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/text.h"

namespace metaformer {

bool fault_strikes(const char* point) {
  static const char* const plan = std::getenv("METAFORMER_FAULT");
  static const char* const colon = plan == nullptr ? nullptr : std::strchr(plan, ':');
  static long remaining = colon == nullptr ? 0 : std::atol(colon + 1);
  return colon != nullptr && std::string_view(plan, colon) == point && --remaining == 0;
}

void fault_point(const char* point, int signal) {
  if (fault_strikes(point)) ::raise(signal);
}

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail_with_errno(const std::string& action, const fs::path& path) {
  throw Error(ExitCode::failure, fmt::format("cannot {} {}: {}", action, path.string(), std::strerror(errno)));
}

int open_or_fail(const fs::path& path, int flags, const char* action) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_with_errno(action, path);
  return descriptor;
}

void write_synced(const fs::path& path, std::string_view content, int flags) {
  const OpenFile file(path, open_or_fail(path, O_WRONLY | O_CREAT | O_NOFOLLOW | flags, "create"));
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
  file.write(content);
  fault_point("sync");
  file.sync();  // after which close() has no error to report
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
  const bool is_number = !process.empty() && process.find_first_not_of("0123456789") == process.npos;
  return is_number ? std::string(name.substr(0, dot)) : "";
}

fs::path rename_to_temporary(const fs::path& path, std::error_code& error) {
  error.clear();
  if (!target_of_temporary(path.filename().string()).empty()) return path;
  const auto temporary = temporary_name(path);
  std::error_code ignored;
  fs::remove_all(temporary, ignored);  // left by an earlier process with this number
  fs::rename(path, temporary, error);
  return temporary;
}

FolderSize size_of_folder(const fs::path& folder) {
  FolderSize size;
  std::error_code error;
  constexpr auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, options, error), end; !error && at != end; at.increment(error)) {
    struct stat status = {};
    if (::lstat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    size.bytes += static_cast<std::uintmax_t>(status.st_size);
    size.changed = std::max(size.changed, status.st_mtime);
  }
  return size;
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

bool is_folder(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (error && status.type() != fs::file_type::not_found)
    fail_data("{}: cannot be read: {}", path.string(), error.message());
  return fs::is_directory(status);
}

std::string read_file(const fs::path& path, std::uintmax_t largest, ExitCode code) {
  const auto fail = [&](const std::string& why) { throw Error(code, path.string() + ": " + why); };
  std::error_code problem, ignored;
  const auto status = fs::status(path, problem);
  if (problem == std::errc::permission_denied) fail("cannot be read: " + problem.message());
  if (!fs::exists(status)) fail("no such file");
  if (!fs::is_regular_file(status)) fail("not a regular file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(std::string("cannot be read: ") + std::strerror(errno));
  const auto size = fs::file_size(path, ignored);
  if (size > largest) fail(fmt::format("{} is larger than the {} allowed", human_bytes(size), human_bytes(largest)));
  std::string content(size, '\0');
  stream.read(content.data(), static_cast<std::streamsize>(size));
  if (stream.gcount() != static_cast<std::streamsize>(size)) fail("could not be read to its end");
  return content;
}

fs::path file_to_write(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw Error(ExitCode::usage, fmt::format("{}: not a regular file, so it is not replaced", path.string()));
  const bool is_link = fs::is_symlink(fs::symlink_status(path, error));
  const auto file = !is_link             ? path
                    : fs::exists(status) ? fs::canonical(path)
                                         : path.parent_path() / fs::read_symlink(path);
  const auto folder = file.parent_path();
  const auto of_folder = fs::status(folder, error);
  if (!folder.empty() && fs::status_known(of_folder) && !fs::is_directory(of_folder))
    throw Error(ExitCode::usage, fmt::format("{}: there is no folder {}", path.string(), folder.string()));
  return file;
}

int open_own_file(const fs::path& path, int flags) {
  // O_NONBLOCK: never waits for a device in the place of the file.
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

OpenFile::~OpenFile() { ::close(descriptor_); }

void OpenFile::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno("write", path_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OpenFile::sync() const {
  if (::fsync(descriptor_) != 0) fail_with_errno("sync", path_);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const auto fail = [&](const std::string& why) { throw Error(ExitCode::data, path.string() + ": " + why); };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(errno == ENOENT ? "no such file" : std::string("cannot be read: ") + std::strerror(errno));
  const OpenFile file(path, descriptor);
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) fail("not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) fail(std::string("cannot be read: ") + std::strerror(errno));
  data_ = static_cast<const char*>(memory);
  ::madvise(memory, size_, MADV_RANDOM);  // else the kernel reads 128 KiB around each page that is missing
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<char*>(data_), size_);
}

void MappedFile::prefetch(std::size_t first, std::size_t count) const {
  if (first >= size_) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = first / page * page;
  ::madvise(const_cast<char*>(data_) + begin, std::min(first + count, size_) - begin, MADV_WILLNEED);
}

AppendedFile::AppendedFile(const fs::path& path) : OpenFile(path, open_own_file(path, O_APPEND)) {}

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
  OpenFile(folder, open_or_fail(folder, O_RDONLY | O_DIRECTORY, "open")).sync();
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
