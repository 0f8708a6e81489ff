#pragma once
// Whole files, read with a bound and written so that a reader sees the old content or the new, never a part.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"

namespace metaformer {

// The content of a regular file. Throws Error(code) when it is missing, unreadable, or larger than `largest` bytes.
std::string read_file(const std::filesystem::path& path, std::uintmax_t largest, ExitCode code);

// Writes to a temporary name beside `path`, syncs, renames. Throws Error(failure) and leaves `path` as it was.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes and syncs a file in place, but not through a link, for use inside a folder that is itself renamed when
// complete.
void write_file_synced(const std::filesystem::path& path, std::string_view content);

// The file that a temporary name of this program stands for: "a.json" of ".a.json.123.tmp", with the number of the
// process that wrote it. "" for any other name.
std::string target_of_temporary(std::string_view name);

// A temporary name beside `path`, which target_of_temporary knows.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// Whether the file holds these bytes.
bool holds(const std::filesystem::path& path, std::string_view bytes);

// Swaps what the two names of one folder stand for: at once, where the file system can. Where it cannot, what `second`
// stood for is called SECOND.replaced in between. Throws Error(failure).
void exchange(const std::filesystem::path& first, const std::filesystem::path& second);
constexpr const char* replaced_suffix = ".replaced";

// failure for an errno that says that the disk is full or broken, else `otherwise`.
ExitCode code_of_errno(int error, ExitCode otherwise);

// Makes what was written to the file last through a power cut.
void sync_file(const std::filesystem::path& path);

// Makes renames inside `folder` durable.
void sync_folder(const std::filesystem::path& folder);

// Makes `link` point to `target` (relative), replacing an earlier link by rename.
void replace_symlink(const std::filesystem::path& target, const std::filesystem::path& link);

}  // namespace metaformer
