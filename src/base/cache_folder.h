#pragma once
// The folder in which the program keeps files between runs.

#include <filesystem>
#include <optional>

namespace metaformer {

// The folder for corpora, tokens and tokenizers. Returns nothing, after a warning, without an absolute HOME or
// XDG_CACHE_HOME, or if others could have written to the folder: it belongs to another user, or everybody may
// write to it.
std::optional<std::filesystem::path> cache_folder();

}  // namespace metaformer
