#pragma once
// Splits comma- or tab-separated text into rows of fields, without interpreting the columns.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

struct DelimitedRow {
  std::vector<std::string> fields;
  std::int64_t line = 0;  // where the row starts, counted from 1
  std::string defect;     // why the fields cannot be separated (there are none then), or ""
};

using UseRow = std::function<void(DelimitedRow&&)>;

// A longer line means that the file has no line ends, or is no table. It is a defect of its row.
constexpr std::size_t longest_delimited_line = std::size_t{16} << 20;

// Strict RFC 4180: quotes enclose a whole field and are doubled inside it, and white space belongs to the field. A row
// with a stray or unclosed quote is a defect of the line where it starts; reading continues at the next line, so
// that one quote cannot swallow the rest of a file. Empty lines are no rows. Lines end with LF, CRLF or CR.
void for_each_csv_row(std::string_view text, const UseRow& use);

// A field as for_each_csv_row reads it back: quoted where it needs quotes.
std::string csv_field(std::string_view text);

// Lines split at every tab; quotes have no meaning (as in GLUE's files). Skips empty lines. Lines end with LF or CRLF.
void for_each_tsv_row(std::string_view text, const UseRow& use);

}  // namespace metaformer
