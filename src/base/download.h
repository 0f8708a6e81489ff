#pragma once
// One file from the network.

#include <cstdint>
#include <filesystem>
#include <string>

namespace metaformer {

// The content behind `url`, at most `largest` bytes, by https only, after five redirections at most. Throws Error (exit
// code 3) with the cause.
std::string download(const std::string& url, std::uint64_t largest);

std::string curl_version_text();

}  // namespace metaformer
