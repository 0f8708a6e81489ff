#pragma once
// Folders of tokens: a corpus of any size, encoded once, from which training reads by mapping files into memory.
//
// `metaformer data prepare` writes
//
//   manifest.json          {"sha256": of the rest, "manifest": {"version", "source", "sources", "options",
//                          "drops_whitespace", "width", "tokenizer": SHA-256 of tokenizer.json, "splits"}}
//   tokenizer.json         as in a checkpoint
//   SPLIT-00000.tokens     ids (data/token_array.h) of 2 or 4 bytes ("width"); SPLIT: train, validation
//   SPLIT-00000.bytes      the bytes of the text that each token stands for, 2 bytes each; only for tokenizers that do
//                          not restore texts
//   SPLIT-00000.documents  the starts of documents, in tokens of the split, as integers of 64 bits
//
// and, until it has finished, unfinished.json, from which the same command continues after a stop. All numbers are
// little-endian. The files are a function of the corpora, the config and the size of a shard.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file_lock.h"
#include "config/data_config.h"
#include "data/tokenized_text.h"

namespace metaformer {

struct PrepareOptions {
  std::vector<std::filesystem::path> corpora;  // files and folders; "-": standard input
  TextDataConfig config;                       // without data.path
  std::filesystem::path out;
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // nullptr: that of the config
  int threads = 1;
  std::int64_t shard_tokens = std::int64_t{1} << 26;  // tokens of a shard, rounded up to whole chunks of the text
  WhenHeld when_held = WhenHeld::fail;                // by another process that prepares the same folder
};

// Encodes the corpora into the folder, in constant memory, or continues after a stop. Tokenizers are learned from the
// first 256 MiB of the training text. Returns at once if the folder is complete.
//
// Errors: those of read_texts; exit code 2 for a folder that holds something else; exit code 1 for a full disk.
void prepare_tokens(const PrepareOptions& options);

// The tokens in a folder. Errors (exit code 3) name the file: not finished, damaged manifest or tokenizer, files
// missing or of another size. Blocks of damaged files are found when they are read. `with_documents`: reads the starts
// of documents.
TokenizedText open_token_folder(const std::filesystem::path& folder, bool with_documents);

// Reads all files and compares their digests. Errors (exit code 3): the first that is damaged.
void verify_token_folder(const std::filesystem::path& folder);

// Whether data.path has tokens, and not texts.
bool has_tokens(const TextDataConfig& config);

// Whether a text is too large to be encoded in memory (load_text).
constexpr std::uintmax_t largest_encoded_in_memory = std::uintmax_t{256} << 20;
bool is_large(const TextDataConfig& config, std::uintmax_t most = largest_encoded_in_memory);

// The text of a config as tokens: from a folder of tokens, or from tokens of another program (data/foreign_tokens.h),
// or from a corpus: in memory, or if it is large and data.cache allows it, from a folder of tokens in the cache.
// `tokenizer`: that of a checkpoint; nullptr: that of the config.
//
// Errors: those of load_corpus; tokens of another tokenizer than the given one (exit code 3), keys that have no effect
// on tokens (exit code 2).
TokenizedText load_text(const TextDataConfig& config, bool offline, std::shared_ptr<const Tokenizer> tokenizer,
                        std::uintmax_t largest_in_memory = largest_encoded_in_memory);

}  // namespace metaformer
