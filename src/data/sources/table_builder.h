#pragma once
// Checks the rows that the readers of formats find, and adds them to a LabelledTable.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"
#include "data/sources/table_file.h"

namespace metaformer {

struct LabelledRow {
  std::string text;   // as in the file
  std::string label;  // without white space around it; with data.rating "positive" or "negative"
  std::int64_t line;  // where the row starts, counted from 1
};

struct LabelledTable : TableFile {
  std::vector<LabelledRow> rows;
  std::size_t left_out = 0;  // rows whose rating lies between data.rating.negative_to and positive_from

  std::size_t all_rows() const { return rows.size() + malformed.size() + left_out; }
};

// Whether the rows of a table need labels, or only texts (for prediction).
enum class Labels { needed, none };

class TableBuilder {
 public:
  // Both must outlive the builder. Labels::none: rows have texts only. `longest`: bytes of a text.
  TableBuilder(LabelledTable& table, const LabelledDataConfig& config, Labels labels = Labels::needed,
               std::size_t longest = longest_table_text)
      : table_(table), config_(config), labels_(labels), longest_(longest) {}

  // A row; malformed when its text or label is empty, too long, not UTF-8, or has NUL bytes, or when data.rating is set
  // and the label is no finite number. White space around the label is left out.
  void add(std::string&& text, std::string_view label, std::int64_t line);

  // A row that its format cannot separate into fields, and why.
  void refuse(std::int64_t line, std::string why);

 private:
  bool needs_labels() const { return labels_ == Labels::needed; }

  // Why the rating is invalid, or "".
  std::string range_defect(double rating) const;

  // "positive", "negative", or "" for a rating between the two.
  std::string_view class_of(double rating) const;

  LabelledTable& table_;
  const LabelledDataConfig& config_;
  Labels labels_;
  std::size_t longest_;
};

}  // namespace metaformer
