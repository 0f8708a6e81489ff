#pragma once
// Pairs of texts from a CSV, TSV or JSON-lines file, gzipped or not.

#include <filesystem>
#include <string_view>
#include <vector>

#include "config/parallel_data_config.h"
#include "data/parallel_splits.h"
#include "data/sources/table_file.h"

namespace metaformer {

struct PairTable : TableFile {
  std::vector<TextPair> pairs;  // as in the file

  std::size_t all_rows() const { return pairs.size() + malformed.size(); }
};

// The columns that a config names. `advice`: where the targets may be instead, for the message on a table of one
// column.
TableColumns columns_of(const ParallelDataConfig& config, std::string_view advice = {});

// Formats, columns and header as in read_labelled_table (data/sources/labelled_table.h), with data.source_field and
// data.target_field in the place of the fields of text and label. A row is malformed as there, too; both texts must
// have a visible character, and in JSON lines be strings. Errors: as there, except that no other first row is
// suspected of being a header. `target_key` is the key that would name a file with the targets, for the message on a
// table of one column.
PairTable read_pair_table(const std::filesystem::path& path, const ParallelDataConfig& config,
                          std::string_view target_key);

}  // namespace metaformer
