#pragma once
// Makes tokenizers from options and a text, from files of this program or another one, or from a cache.

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

// In a folder that this program has exported: the tokenizer in this program's own form, if transformers has no such
// tokenizer or has it in another form.
constexpr const char* own_tokenizer_file = "metaformer_tokenizer.json";

// `path`: one of these files, or a folder, of which the first of these files is read:
//   metaformer_tokenizer.json   the tokenizer of a checkpoint
//   tokenizer.json              byte-level BPE as the `tokenizers` library writes it (text/byte_level_bpe.h)
//   vocab.json and merges.txt   GPT-2's
//   tokenizer.model             sentencepiece, white space kept; read instead of a tokenizer.json that repeats it
// A folder's config.json with a larger vocab_size makes the vocabulary that large, and its other files give the special
// tokens (text/special_tokens.h). Errors (exit code 3) name the file and the field: there is no such file, or something
// in it is not supported.
std::unique_ptr<Tokenizer> read_pretrained_tokenizer(const std::filesystem::path& path);

// The file of those above that is read from a folder; nothing if it has none.
std::optional<std::filesystem::path> find_pretrained_tokenizer(const std::filesystem::path& folder);

// The tokenizer that config.tokenizer describes, learned from `training_text`. If data.cache allows it, tokenizers that
// take long to learn (unigram, bpe) are read from the cache, or else learned and added to it: cache_folder()/tokenizers
// has files KEY.json: {"sha256": of KEY and the tokenizer's JSON, "tokenizer": the content of tokenizer.json}, where
// KEY is the SHA-256 of a format version, the options and the text. A damaged file, or one that cannot be written,
// causes a warning. Errors: exit code 3.
std::unique_ptr<Tokenizer> obtain_tokenizer(const DataConfig& config, std::string_view training_text, Unknown unknown);

// The cache file of a tokenizer, which need not exist; "" for tokenizers that are not cached, and without a cache.
std::filesystem::path cached_tokenizer_path(const TokenizerOptions& options, std::string_view training_text);

}  // namespace metaformer
