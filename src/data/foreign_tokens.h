#pragma once
// Tokens that other programs have written:
//
//   nanoGPT                   a folder with train.bin and val.bin, ids of 2 bytes; characters also have meta.pkl
//   llm.c, modded-nanogpt     a folder with *train*.bin and *val*.bin, or one such file: a header of 256 integers of 32
//                             bits (magic number, version, number of tokens), then ids of 2 (GPT-2) or 4 bytes (LLaMA
//                             3)
//   Megatron-LM               NAME.bin with ids and NAME.idx with the lengths of sequences and documents
//
// The tokenizer is that of meta.pkl or, for the others, data.tokenizer.

#include <filesystem>
#include <memory>

#include "config/data_config.h"
#include "data/tokenized_text.h"

namespace metaformer {

bool is_foreign_tokens(const std::filesystem::path& path);
bool has_foreign_validation(const std::filesystem::path& path);  // files of its own for validation

// The tokens at data.path. Files for validation are those of the folder, or data.validation_path; else the last
// data.validation_fraction of the tokens is held out. `tokenizer`: that of a checkpoint; nullptr: see above.
//
// Errors (exit code 3) name the file: damaged or cut off, of an unknown kind, ids that the tokenizer does not have
// (when they are read). Errors (exit code 2): no tokenizer is named; documents are needed and the files have none.
TokenizedText open_foreign_tokens(const TextDataConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace metaformer
