#pragma once
// Finds the two columns that are asked for in a CSV or TSV file.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "data/sources/table_file.h"

namespace metaformer {

// `second` is empty if the columns need no second.
using UseColumns = std::function<void(std::string&& first, std::string&& second, std::int64_t line)>;

// Calls `use` with the two columns of every row of `content`, csv if `format` is that, else tsv. Adds rows without them
// to the malformed ones of `table`, and sets has_header and has_guessed_columns. Errors: see read_labelled_table.
void for_each_table_row(std::string_view content, TableFormat format, const TableColumns& columns, TableFile& table,
                        const UseColumns& use);

}  // namespace metaformer
