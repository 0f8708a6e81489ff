#pragma once
// Makes tokenizers from options, and keeps learned ones in a cache.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "config/data_config.h"
#include "text/tokenizer.h"

namespace metaformer {

// Makes tokenizers from options.

// Builds the tokenizer that `options` describe, from `text` if it depends on one. Errors: exit code 3.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text,
                                          Unknown unknown = Unknown::refuse);

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
