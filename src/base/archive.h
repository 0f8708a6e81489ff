#pragma once
// Compressed files and archives.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace metaformer {

// Whether `bytes` begin like a gzipped file (RFC 1952).
bool is_gzip(std::string_view bytes);

// The concatenated content of all members; their checksums are verified. Errors (exit code 3) name `source`: cut off,
// damaged, more than `largest` bytes when unpacked (memory holds at most one piece more than that).
std::string unpack_gzip(std::string_view bytes, std::uintmax_t largest, const std::string& source);

using WantsEntry = std::function<bool(std::string_view name)>;
using UseEntry = std::function<void(std::string_view name, std::string&& content)>;

// Calls `use` with every regular file of a tar archive, gzipped or not, whose name `wants` accepts. Writes nothing to
// disk. Errors (exit code 3): unreadable, no archive, cut off, damaged (gzip's checksum is verified), an entry above
// `largest` bytes. An error may come after the last entry was used.
void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use);

}  // namespace metaformer
