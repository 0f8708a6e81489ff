#pragma once
// Digests in hexadecimal.

#include <filesystem>
#include <string>
#include <string_view>

namespace metaformer {

std::string sha256(std::string_view bytes);
std::string md5(std::string_view bytes);  // which some publishers use; not secure against attacks

// The digest of a file of up to 16 GiB. Errors: exit code 3.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace metaformer
