#pragma once
// Pairs of texts from two files: line n of one belongs to line n of the other.

#include <filesystem>
#include <string>
#include <vector>

#include "data/parallel_splits.h"

namespace metaformer {

struct LinePairs {
  std::vector<TextPair> pairs;
  std::string source_sha256, target_sha256;  // of the whole files, before unpacking
};

// Each file is UTF-8, gzipped (recognised by its first bytes) or not. Lines end with LF or CRLF; the last line may lack
// its end. Leaves out a byte order mark, and no other white space.
//
// Errors (exit code 3) name the file, and the line if there is one: unreadable, cut off or damaged gzip, more than
// 16 GiB (unpacked), a line that is not UTF-8, has NUL bytes or more than 1 MiB, no lines, a line without partner in
// the other file, a line with white space only.
LinePairs read_line_pairs(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace metaformer
