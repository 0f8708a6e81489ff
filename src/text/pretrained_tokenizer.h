#pragma once
// Tokenizers that other programs have trained, from the files that they wrote.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace metaformer {

// The tokenizer of a folder that this program has exported, in its own form, where transformers has none or another.
constexpr const char* own_tokenizer_file = "metaformer_tokenizer.json";

// `path`: one of these files, or a folder, in which the first of them counts:
//   metaformer_tokenizer.json   the tokenizer of a checkpoint (text/load_tokenizer.h)
//   tokenizer.json              byte-level BPE as the `tokenizers` library writes it (text/byte_level_bpe.h)
//   vocab.json and merges.txt   GPT-2's
//   tokenizer.model             sentencepiece, white space kept; it comes before a tokenizer.json that repeats it
// A folder's config.json with a larger vocab_size makes the vocabulary that large, and its other files give the special
// tokens (text/special_tokens.h). Errors (exit code 3): there is no such file, or it says something that is not
// supported, with the file and the field.
std::unique_ptr<Tokenizer> read_pretrained_tokenizer(const std::filesystem::path& path);

// The file of those above that counts in a folder; nothing when it has none.
std::optional<std::filesystem::path> find_pretrained_tokenizer(const std::filesystem::path& folder);

}  // namespace metaformer
