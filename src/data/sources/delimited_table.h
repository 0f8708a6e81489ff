#pragma once
// Finds the columns of text and label in a CSV or TSV file.

#include <string_view>

#include "base/delimited_rows.h"
#include "data/sources/table_builder.h"

namespace metaformer {

// Adds the rows of `content`, which `for_each_row` separates, to `table` through `builder`. Errors: see
// read_labelled_table.
void add_delimited_rows(std::string_view content, const LabelledDataConfig& config,
                        void (*for_each_row)(std::string_view, const UseRow&), LabelledTable& table,
                        TableBuilder& builder);

// A header that is read as a row would add a class: Error (exit code 3) if the first row looks like a header. Not
// checked if data.header or data.rating is set.
void refuse_header_as_row(const LabelledTable& table, const LabelledDataConfig& config);

}  // namespace metaformer
