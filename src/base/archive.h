#pragma once
// Reads the files of a tar archive, gzipped or not, one after the other, without unpacking it.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace metaformer {

using WantsEntry = std::function<bool(std::string_view name)>;
using UseEntry = std::function<void(std::string_view name, std::string&& content)>;

// Reads the regular files whose names are wanted. Errors (exit code 3): unreadable, no archive, cut off, damaged
// (gzip's checksum is verified), an entry above `largest` bytes. An error may come after the last entry was used.
void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use);

}  // namespace metaformer
