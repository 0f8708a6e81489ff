#pragma once
// Whole files, read with a bound and written so that a reader sees the old content or the new, never a part.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

namespace metaformer {

// The content of a regular file. Throws Error(code) when it is missing, unreadable, or larger than `largest` bytes.
std::string read_file(const std::filesystem::path& path, std::uintmax_t largest, ExitCode code);

// Writes to a temporary name beside `path`, syncs, renames. Throws Error(failure) and leaves `path` as it was.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes and syncs a new file in place, for use inside a folder that is itself renamed when complete.
void write_file_synced(const std::filesystem::path& path, std::string_view content);

// Makes renames inside `folder` durable.
// Makes what was written to the file last through a power cut.
void sync_file(const std::filesystem::path& path);

void sync_folder(const std::filesystem::path& folder);

// Makes `link` point to `target` (relative), replacing an earlier link by rename.
void replace_symlink(const std::filesystem::path& target, const std::filesystem::path& link);

}  // namespace metaformer
