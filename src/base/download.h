#pragma once
// Downloads, and the folder that keeps them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace metaformer {

// The folder for corpora, tokens and tokenizers. Returns nothing, after a warning, without an absolute HOME or
// XDG_CACHE_HOME, or if others could have written to the folder: it belongs to another user, or everybody may
// write to it.
std::optional<std::filesystem::path> cache_folder();

// The content at `url`, at most `largest` bytes, over https only, with up to five redirections. Throws Error (exit
// code 3) with the cause.
std::string download(const std::string& url, std::uint64_t largest);

std::string curl_version_text();

}  // namespace metaformer
