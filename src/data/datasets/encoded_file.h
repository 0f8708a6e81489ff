#pragma once
// Encoded splits as one string of bytes:
//
//   "metaformer tokens\n", key              the key is a SHA-256 in 64 hexadecimal digits: of what the tokens come from
//   description, tokenizer                  strings of JSON, as environment.json and tokenizer.json have them
//   labels                                  their count, then strings
//   digests of the splits' texts            three strings
//   training, validation, test texts        their count, then of each: label, count of ids, ids, text (a string)
//   SHA-256 of all bytes before it          64 hexadecimal digits
//
// Counts and labels are unsigned integers of 64 bits, ids signed ones of 32, all little-endian. A string is its count
// of bytes, then those.

#include <string>
#include <string_view>

#include "data/datasets/encoded_splits.h"

namespace metaformer {

// Errors (exit code 1): more than `largest` bytes, which are not made then.
std::string pack_encoded_splits(const EncodedSplits& splits, std::string_view key, std::uint64_t largest);

// Nothing of the bytes is used before the digest at their end is found right. Errors (exit code 3) begin with `source`:
// cut off, damaged, of another key, ids that the tokenizer does not have.
EncodedSplits unpack_encoded_splits(std::string_view bytes, std::string_view key, const std::string& source);

}  // namespace metaformer
