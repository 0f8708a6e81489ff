#pragma once
// Reads whole files up to a bound, and writes them so that a reader sees the old content or the new one, never a part.

#include <csignal>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace metaformer {

// Injects faults, so that tests can check the recovery from them. METAFORMER_FAULT=NAME:COUNT makes the COUNT-th
// arrival at the point NAME fail; without the variable a point costs one comparison.

// Whether this arrival is the one that fails.
bool fault_strikes(const char* point);

// Raises the signal if this arrival is the one that fails. SIGKILL ends the process at once, as a power cut would.
void fault_point(const char* point, int signal = SIGKILL);

// Whether the path is that of a folder, or of a link to one. Errors (exit code 3): it cannot be read.
bool is_folder(const std::filesystem::path& path);

// The content of a regular file. Throws Error(code) when it is missing, unreadable, or larger than `largest` bytes.
std::string read_file(const std::filesystem::path& path, std::uintmax_t largest, ExitCode code);

// Writes a temporary file next to `path`, syncs and renames it. On Error(failure), `path` is unchanged.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Opens a file of a run for reading and writing, and creates it if it does not exist. Refuses links, because they might
// lead to any file of the user. Errors (exit code 2, for a full or broken disk 1): a link, a folder or another file
// that is not regular, no permission.
int open_own_file(const std::filesystem::path& path, int flags = 0);

// Owns the descriptor of an open file or folder. Its functions throw Error(failure).
class OpenFile {
 public:
  OpenFile(const std::filesystem::path& path, int descriptor) : path_(path), descriptor_(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  void write(std::string_view bytes) const;
  void sync() const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// A file in memory, of which the kernel reads the pages that are used. It must not become shorter meanwhile.
class MappedFile {
 public:
  // Errors (exit code 3): missing, not a regular file, unreadable.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }

  // Lets the kernel read these bytes from the disk, without waiting for it.
  void prefetch(std::size_t first, std::size_t count) const;

 private:
  std::filesystem::path path_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file of a run to which data are appended, opened by open_own_file.
struct AppendedFile : OpenFile {
  explicit AppendedFile(const std::filesystem::path& path);
};

// Writes and syncs a file in place, but not through a link; for files of a folder that is renamed when it is
// complete.
void write_file_synced(const std::filesystem::path& path, std::string_view content);

// The file that a temporary name of this program stands for: "a.json" for ".a.json.123.tmp", which process 123 has
// written; "" for any other name.
std::string target_of_temporary(std::string_view name);

// A temporary name next to `path` that target_of_temporary recognises.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// Renames a file or folder to its temporary name, unless it has one, and returns that name. To be called before a
// folder is removed, so that a process that dies meanwhile leaves no incomplete folder under its name. If `error` is
// set, the path has kept its name.
std::filesystem::path rename_to_temporary(const std::filesystem::path& path, std::error_code& error);

// The files in a folder, at any depth, without those behind links. What changes meanwhile may be missed.
struct FolderSize {
  std::uintmax_t bytes = 0;
  std::time_t changed = 0;  // when the newest file was written; 0: there is no file
};
FolderSize size_of_folder(const std::filesystem::path& folder);

// Whether the file contains exactly these bytes.
bool holds(const std::filesystem::path& path, std::string_view bytes);

// Exchanges two names in one folder, in one operation if the file system supports that. Otherwise `second`
// is called SECOND.replaced in between. Throws Error(failure).
void exchange(const std::filesystem::path& first, const std::filesystem::path& second);
constexpr const char* replaced_suffix = ".replaced";

// ExitCode::failure for an errno of a full or broken disk, else `otherwise`.
ExitCode code_of_errno(int error, ExitCode otherwise);

// The path at which a file that a user has named is written: links are followed. Errors (exit code 2): there is
// something other than a regular file, which would be replaced, or the folder does not exist.
std::filesystem::path file_to_write(const std::filesystem::path& path);

// Makes renames inside `folder` durable.
void sync_folder(const std::filesystem::path& folder);

// Makes `link` point to `target` (relative), replacing an earlier link by rename.
void replace_symlink(const std::filesystem::path& target, const std::filesystem::path& link);

}  // namespace metaformer
