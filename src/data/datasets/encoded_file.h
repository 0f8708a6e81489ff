#pragma once
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

#include <string>
#include <string_view>

#include "data/datasets/encoded_splits.h"

namespace metaformer {

// Errors (exit code 1), before anything is allocated: more than `largest` bytes.
std::string pack_encoded_splits(const EncodedSplits& splits, std::string_view key, std::uint64_t largest);

// Checks the digest at the end before it uses any of the bytes. Errors (exit code 3) begin with `source`:
// cut off, damaged, of another key, ids that the tokenizer does not have.
EncodedSplits unpack_encoded_splits(std::string_view bytes, std::string_view key, const std::string& source);

}  // namespace metaformer
