#pragma once
// Byte-level BPE (GPT-2, Radford et al. 2019) in the format of the library `tokenizers`: regular expressions cut a text
// into words, whose bytes are merged pair by pair.

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/pair_merges.h"
#include "text/split_pattern.h"

namespace metaformer {

struct ByteLevelBpe {
  std::vector<std::string> tokens;  // the bytes of each id; "" for an id that no token has
  std::vector<std::string> names;   // the same as the file writes them
  std::array<std::int32_t, 256> byte_ids{};
  PairMerges merges;
  // Words that are not merged, because they are tokens (the file's ignore_merges).
  std::unordered_map<std::string, std::int32_t> whole_words;
  std::vector<SplitPattern> patterns;  // each cuts what those before it left
  std::array<AddedTokens, 2> added;    // to be found first, and in the rest
};

// Reads tokenizer.json. What has no effect on the ids of plain text is ignored: the decoder, post-processing,
// truncation and padding. Errors (exit code 3) name `source` and the field: what is missing, damaged, or changes text
// so that decoding cannot restore it (normalisers, a space in front), and models other than byte-level BPE.
ByteLevelBpe read_tokenizer_json(const std::string& text, const std::string& source);

}  // namespace metaformer
