#pragma once
// The cache of labelled texts as tokens: a second start need not read and tokenize the texts again.
//
// A file, cache_folder()/tokens/KEY.bin, is
//
//   "metaformer tokens\n", KEY              SHA-256 in 64 hexadecimal digits, of everything that the tokens depend on
//   description, tokenizer                  strings of JSON, as in environment.json and tokenizer.json
//   labels                                  their count, then strings
//   digests of the splits' texts            three strings
//   bytes of the training texts             a count
//   training, validation, test texts        their count, then for each: label, count of ids, ids, text (a string)
//   SHA-256 of all bytes before it          64 hexadecimal digits
//
// Counts and labels are unsigned integers of 64 bits, ids signed ones of 32, all little-endian. A string is its count
// of bytes, then the bytes. KEY depends on a format version; name and content of every source; the keys of the data
// section that say how it is read and tokenized; and the codec, if one is given. If all files exceed 2 GiB, the least
// recently used ones are removed.

#include <cstdint>
#include <string>
#include <string_view>

#include "data/labelled.h"

namespace metaformer {

// The result of encode_splits for the result of load_labelled_splits, with the same errors. If data.cache allows it,
// the result is read from the cache, or else added to it. A damaged file is rebuilt, with a warning; a file that cannot
// be written causes a warning, too.
EncodedSplits load_encoded_splits(const LabelledDataConfig& config, bool offline, Codec codec);

// The bytes of a file. Errors (exit code 1), before anything is allocated: more than `largest` bytes.
std::string write_encoded(const EncodedSplits& splits, std::string_view key, std::uint64_t largest);

// Checks the digest at the end before it uses any of the bytes. Errors (exit code 3) begin with `source`:
// cut off, damaged, of another key, ids that the tokenizer does not have.
EncodedSplits read_encoded(std::string_view bytes, std::string_view key, const std::string& source);

}  // namespace metaformer
