// JSON lines: rows and malformed rows on lines that exist, whatever the bytes; rows keep a table's promises.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "data/labelled_source.h"

namespace {

using namespace metaformer;

void require(bool holds) {
  if (!holds) std::abort();
}

void read(std::string_view text, const LabelledDataConfig& config) {
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  LabelledTable table;
  TableBuilder builder(table, config);
  try {
    add_json_lines(text, config, "fuzz", builder);
  } catch (const Error&) {
  }
  require(table.all_rows() <= static_cast<std::size_t>(lines));
  std::int64_t last = 0;
  for (const auto& row : table.rows) {
    require(row.line > last && row.line <= lines);
    last = row.line;
    require(utf8_defect(row.text).empty() && utf8_defect(row.label).empty());
    require(!is_blank(row.text) && !row.label.empty() && row.text.find('\0') == std::string::npos);
    require(!config.rating.positive_from || row.label == "positive" || row.label == "negative");
  }
  for (const auto& row : table.malformed) require(row.line >= 1 && row.line <= lines && !row.why.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  LabelledDataConfig config;
  read(text, config);
  config.text_field = "reviewText";
  config.label_field = "overall";
  config.rating = {.positive_from = 4, .negative_to = 2};
  read(text, config);
  return 0;
}
