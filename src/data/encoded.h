#pragma once
// Texts as tokens, by split, and their cache.

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/labelled_source.h"
#include "text/tokenizer.h"

namespace metaformer {

// Labelled texts as tokens and class ids, by split: the step between a source and the batches of training.
struct EncodedText {
  std::vector<std::int32_t> ids;  // all of them, at least one
  std::int64_t label = 0;
  std::string text;  // only for training texts that are split into subwords again in every epoch
};

struct EncodedSplits {
  Codec codec;
  std::array<std::vector<EncodedText>, 3> texts;  // by Split
  nlohmann::ordered_json description;             // of their source
  std::array<std::string, 3> text_digests;        // by Split: SHA-256 over the texts in the order of the source

  std::vector<EncodedText>& operator[](Split split) { return texts[static_cast<std::size_t>(split)]; }
  const std::vector<EncodedText>& operator[](Split split) const { return texts[static_cast<std::size_t>(split)]; }
};

// Makes what the codec lacks, tokenizer and labels, from the training texts. Errors (exit code 3): only one label, a
// label that is not among the codec's, a text without a token.
EncodedSplits encode_splits(LabelledSplits splits, const LabelledDataConfig& config, Codec codec);

// data.tokenizer.sampling: the power of probabilities in the segmentations of training texts; 0: no resampling.
double sampling_of(const TokenizerOptions& options);

// Encoded splits as one string of bytes:
//
//   "metaformer tokens\n", key              the key is a SHA-256 in 64 hexadecimal digits, of all they depend on
//   description, tokenizer                  strings of JSON, as in environment.json and tokenizer.json
//   labels                                  their count, then strings
//   digests of the splits' texts            three strings
//   training, validation, test texts        their count, then of each: label, count of ids, ids, text (a string)
//   SHA-256 of all bytes before it          64 hexadecimal digits
//
// Counts and labels are unsigned integers of 64 bits, ids signed ones of 32, all little-endian. A string is its count
// of bytes, then the bytes.

// Errors (exit code 1), before anything is allocated: more than `largest` bytes.
std::string pack_encoded_splits(const EncodedSplits& splits, std::string_view key, std::uint64_t largest);

// Checks the digest at the end before it uses any of the bytes. Errors (exit code 3) begin with `source`:
// cut off, damaged, of another key, ids that the tokenizer does not have.
EncodedSplits unpack_encoded_splits(std::string_view bytes, std::string_view key, const std::string& source);

// Keeps encoded splits in cache_folder()/tokens, one file KEY.bin each (data/encoded.h), so that a
// second start need not read and tokenize the texts again. KEY is the SHA-256 of all they depend on: a format version;
// name and content of every source, wherever it lies; the keys of the data section that say how it is read and
// tokenized; and the codec, if one is given. If all files exceed 2 GiB, the least recently used ones are removed.

// The result of encode_splits for load_labelled_splits, with its errors: from the cache if data.cache allows it,
// otherwise added to it. Ignores a damaged entry with a warning and rebuilds it; an entry that cannot be written is
// a warning too.
EncodedSplits load_encoded_splits(const LabelledDataConfig& config, bool offline, Codec codec);

}  // namespace metaformer
