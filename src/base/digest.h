#pragma once
// Digests as hexadecimal digits.

#include <filesystem>
#include <string>
#include <string_view>

namespace metaformer {

std::string sha256(std::string_view bytes);
std::string md5(std::string_view bytes);  // what some publishers name; no proof against malice

// Of a file of up to 16 GiB. Errors: exit code 3.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace metaformer
