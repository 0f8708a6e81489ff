#pragma once
// Tokenizers that take long to learn (unigram, bpe) are kept in cache_folder()/tokenizers, one file each:
//
//   KEY.json: {"sha256": of KEY and the tokenizer's JSON, "tokenizer": what tokenizer.json holds}
//
// KEY is the SHA-256 of what they come from: a format version, the options, the training text.

#include <filesystem>
#include <memory>
#include <string_view>

#include "config/data_config.h"
#include "text/tokenizer.h"

namespace metaformer {

// The tokenizer that config.tokenizer describes, from the cache where it is there and data.cache allows, else made from
// `training_text`, and kept. A file that is damaged or not what its name says is not used: a warning, and it is made
// anew; one that cannot be written is a warning too. Errors: exit code 3.
std::unique_ptr<Tokenizer> obtain_tokenizer(const DataConfig& config, std::string_view training_text, Unknown unknown);

// The file that a tokenizer has or would have; "" for kinds that are made at once, and without a cache.
std::filesystem::path cached_tokenizer_path(const TokenizerOptions& options, std::string_view training_text);

}  // namespace metaformer
