#pragma once
// Compressed files and archives.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace metaformer {

// Gzipped files (RFC 1952), recognised by their first bytes. Checksums are verified.
bool is_gzip(std::string_view bytes);

// The concatenated content of all members. Errors (exit code 3) name `source`: cut off, damaged, more than
// `largest` bytes when unpacked (memory holds at most one piece more than that).
std::string unpack_gzip(std::string_view bytes, std::uintmax_t largest, const std::string& source);

using WantsEntry = std::function<bool(std::string_view name)>;
using UseEntry = std::function<void(std::string_view name, std::string&& content)>;

// Reads the regular files of a tar archive, gzipped or not, whose names are wanted, without writing any. Errors (exit
// code 3): unreadable, no archive, cut off, damaged (gzip's checksum is verified), an entry above `largest` bytes. An
// error may come after the last entry was used.
void for_each_archive_entry(const std::filesystem::path& path, std::size_t largest, const WantsEntry& wants,
                            const UseEntry& use);

}  // namespace metaformer
