#pragma once
// Pairs of texts, split.

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"
#include "data/tables.h"
#include "data/token_rows.h"

namespace metaformer {

// Pairs of texts that are already split: the result of every source of them.
struct TextPair {
  std::string source;
  std::string target;
  std::string source_place, target_place;  // for messages: "train.de:17", "train.en:17"
};

struct PairSplits {
  std::array<std::vector<TextPair>, 3> pairs;  // by Split; no test pairs if the config names none
  nlohmann::ordered_json description;          // for environment.json: paths, digests and numbers of pairs by split

  std::vector<TextPair>& operator[](Split split) { return pairs[static_cast<std::size_t>(split)]; }
  const std::vector<TextPair>& operator[](Split split) const { return pairs[static_cast<std::size_t>(split)]; }
};

// Pairs of texts from a CSV, TSV or JSON-lines file, gzipped or not.
struct PairTable : TableFile {
  std::vector<TextPair> pairs;  // as in the file

  std::size_t all_rows() const { return pairs.size() + malformed.size(); }
};

// The columns that a config names. `advice`: where the targets may be instead, for the message on a table of one
// column.
TableColumns columns_of(const ParallelDataConfig& config, std::string_view advice = {});

// Formats, columns and header as in read_labelled_table (data/labelled_source.h), with data.source_field and
// data.target_field in the place of the fields of text and label. A row is malformed as there, too; both texts must
// have a visible character, and in JSON lines be strings. Errors: as there, except that no other first row is
// suspected of being a header. `target_key` is the key that would name a file with the targets, for the message on a
// table of one column.
PairTable read_pair_table(const std::filesystem::path& path, const ParallelDataConfig& config,
                          std::string_view target_key);

// Pairs of texts from two files: line n of one belongs to line n of the other.
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

// Pairs of texts, from the source that a config names, already split.

// Reads data.path, and data.validation_path and data.test_path if they are set: each is a table
// (data/pair_source.h), or with its target path the lines of two files (data/pair_source.h).
// Without data.validation_path a stable hash of the source holds data.validation_fraction of the pairs out, so equal
// sources are in the same split. Without data.path reads the public corpus multi30k, which data.corpus must name, with
// its splits, after downloading it if it is missing (unless `offline`). Not for a config with data.synthetic.
//
// The description has the paths of each split that is there, their SHA-256 and the number of pairs; the number of
// malformed rows of each table, under `train` if a part of it is held out; the name of a public corpus and the
// languages.
//
// Errors: no data; paths, languages or keys of tables that mean nothing for these data; an unknown corpus or one
// without pairs (exit code 2); those of tables and lines, a missing corpus, one with another digest, too few distinct
// sources for a validation split (exit code 3).
PairSplits load_pair_splits(const ParallelDataConfig& config, bool offline);

// The texts for a tokenizer to learn from: those of both sides, each followed by a line break.
std::string joined_texts(const std::vector<TextPair>& pairs);

}  // namespace metaformer
