#pragma once
// Gzipped files (RFC 1952), told by their first bytes, whatever their name.

#include <cstdint>
#include <string>
#include <string_view>

namespace metaformer {

bool is_gzip(std::string_view bytes);

// The content, of all members one after the other. Checksums are verified. Errors (exit code 3) name `source`: cut off,
// damaged, more than `largest` bytes once unpacked (at most a piece more than that is ever in memory).
std::string unpack_gzip(std::string_view bytes, std::uintmax_t largest, const std::string& source);

}  // namespace metaformer
