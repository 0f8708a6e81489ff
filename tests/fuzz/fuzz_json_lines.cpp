// JSON lines with any bytes give rows and malformed rows on existing lines; rows have the properties of a table's rows.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/archive.h"
#include "base/error.h"
#include "base/utf8.h"
#include "data/labelled.h"

namespace {

using namespace metaformer;

void require(bool holds) {
  if (!holds) std::abort();
}

void read(std::string_view content, const LabelledDataConfig& config) {
  const auto lines = 1 + std::count(content.begin(), content.end(), '\n');
  Table table;
  try {
    table = read_table(std::string(content), "fuzz", TableFormat::jsonl, columns_of(config));
    classify_ratings(table, config.rating);
  } catch (const Error&) {
  }
  require(table.all_rows() <= static_cast<std::size_t>(lines));
  std::int64_t last = 0;
  for (const auto& row : table.rows) {
    require(row.line > last && row.line <= lines);
    last = row.line;
    const auto &text = row.fields.at(0), &label = row.fields.at(1);
    require(utf8_defect(text).empty() && utf8_defect(label).empty());
    require(!is_blank(text) && !label.empty() && text.find('\0') == std::string::npos);
    require(!config.rating.positive_from || label == "positive" || label == "negative");
  }
  for (const auto& row : table.malformed) require(row.line >= 1 && row.line <= lines && !row.why.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (is_gzip(text)) return 0;  // its lines are not those of the text
  LabelledDataConfig config;
  read(text, config);
  config.text_field = "reviewText";
  config.label_field = "overall";
  config.rating = {.positive_from = 4, .negative_to = 2};
  read(text, config);
  return 0;
}
