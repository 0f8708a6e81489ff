#pragma once
// Rows of comma- or tab-separated text, before anyone knows what their columns mean.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

struct DelimitedRow {
  std::vector<std::string> fields;
  std::int64_t line = 0;  // where the row starts, counted from 1
  std::string defect;     // why the fields cannot be told apart (there are none then), or ""
};

using UseRow = std::function<void(DelimitedRow&&)>;

// RFC 4180, strictly: quotes enclose a whole field and are doubled inside it, white space belongs to the field. A row
// with a stray or unclosed quote is one defect at the line where it starts; reading goes on at the line after that, so
// that one quote cannot swallow the rest of a file. Empty lines are no rows. Lines end with LF, CRLF or CR.
void for_each_csv_row(std::string_view text, const UseRow& use);

// Lines split at every tab; quotes mean nothing (as in GLUE's files). Empty lines are no rows. LF or CRLF.
void for_each_tsv_row(std::string_view text, const UseRow& use);

}  // namespace metaformer
