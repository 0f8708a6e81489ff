#pragma once
// The columns of a CSV or TSV file: which holds the text and which the label.

#include <string_view>

#include "base/delimited_rows.h"
#include "data/sources/table_builder.h"

namespace metaformer {

// Adds the rows of `content`, which `for_each_row` tells apart, to `table`, by `builder`. Errors: see
// read_labelled_table.
void add_delimited_rows(std::string_view content, const DataConfig& config,
                        void (*for_each_row)(std::string_view, const UseRow&), LabelledTable& table,
                        TableBuilder& builder);

// A header that was taken for a row would add a class: an Error (exit code 3) when the first row looks like one. Not
// asked where data.header or data.rating is set.
void refuse_header_as_row(const LabelledTable& table, const DataConfig& config);

}  // namespace metaformer
