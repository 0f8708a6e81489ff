#pragma once
// The folder that the program keeps files in between runs.

#include <filesystem>
#include <optional>

namespace metaformer {

// Where corpora, tokens and tokenizers are kept between runs. Nothing, after a warning, without an absolute HOME or
// XDG_CACHE_HOME, or where others could have put something there: the folder belongs to another user, or everybody may
// write to it.
std::optional<std::filesystem::path> cache_folder();

}  // namespace metaformer
