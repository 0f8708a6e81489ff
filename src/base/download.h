#pragma once
// Downloads a file.

#include <cstdint>
#include <filesystem>
#include <string>

namespace metaformer {

// The content at `url`, at most `largest` bytes, over https only, with up to five redirections. Throws Error (exit
// code 3) with the cause.
std::string download(const std::string& url, std::uint64_t largest);

std::string curl_version_text();

}  // namespace metaformer
