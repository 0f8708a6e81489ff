// Delimited tables with any bytes give rows on existing lines.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/rows.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metaformer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto breaks = std::count_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; });
  for (const auto for_each_row : {for_each_csv_row, for_each_tsv_row}) {
    std::int64_t last = 0;
    for_each_row(text, [&](DelimitedRow&& row) {
      if (row.line < 1 || row.line > breaks + 1 || row.line < last) std::abort();
      last = row.line;
    });
  }
  return 0;
}
