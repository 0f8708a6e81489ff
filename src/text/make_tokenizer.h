#pragma once
// Where tokenizers come from: options and a text, files of this program or another one, a cache.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "config/data_config.h"
#include "text/tokenizer.h"

namespace metaformer {

// Builds the tokenizer that `options` describe, from `text` if it depends on one. Errors: exit code 3.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text,
                                          Unknown unknown = Unknown::refuse);

// Reads the tokenizer.json of a checkpoint; `source` names it in errors (exit code 3).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& json_text, const std::string& source);

// The tokenizer of a folder that this program has exported, in its own form, where transformers has none or another.
constexpr const char* own_tokenizer_file = "metaformer_tokenizer.json";

// `path`: one of these files, or a folder, in which the first of them counts:
//   metaformer_tokenizer.json   the tokenizer of a checkpoint
//   tokenizer.json              byte-level BPE as the `tokenizers` library writes it (text/byte_level_bpe.h)
//   vocab.json and merges.txt   GPT-2's
//   tokenizer.model             sentencepiece, white space kept; it comes before a tokenizer.json that repeats it
// A folder's config.json with a larger vocab_size makes the vocabulary that large, and its other files give the special
// tokens (text/special_tokens.h). Errors (exit code 3): there is no such file, or it says something that is not
// supported, with the file and the field.
std::unique_ptr<Tokenizer> read_pretrained_tokenizer(const std::filesystem::path& path);

// The file of those above that counts in a folder; nothing when it has none.
std::optional<std::filesystem::path> find_pretrained_tokenizer(const std::filesystem::path& folder);

// Keeps tokenizers that take long to learn (unigram, bpe) in cache_folder()/tokenizers, one file each:
//
//   KEY.json: {"sha256": of KEY and the tokenizer's JSON, "tokenizer": the content of tokenizer.json}
//
// KEY is the SHA-256 of everything they depend on: a format version, the options, the training text.

// Returns the tokenizer that config.tokenizer describes: from the cache if data.cache allows it, otherwise learned from
// `training_text` and added to the cache. Ignores a damaged entry with a warning and rebuilds it; an entry that cannot
// be written is a warning too. Errors: exit code 3.
std::unique_ptr<Tokenizer> obtain_tokenizer(const DataConfig& config, std::string_view training_text, Unknown unknown);

// The cache file of a tokenizer, which need not exist; "" for tokenizers that are not cached, and without a cache.
std::filesystem::path cached_tokenizer_path(const TokenizerOptions& options, std::string_view training_text);

}  // namespace metaformer
