#include "tasks/class_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/text.h"
#include "tasks/classification_task.h"

namespace metaformer {

namespace {

using Row = std::vector<std::string>;

constexpr std::size_t gap = 2;

// Columns of the longest cell of each column of a table.
std::vector<std::size_t> column_widths(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  return widths;
}

// The first column is aligned to the left, the others to the right.
std::vector<std::string> aligned(const std::vector<Row>& rows) {
  const auto widths = column_widths(rows);
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    auto& line = lines.emplace_back(row[0] + std::string(widths[0] - display_width(row[0]), ' '));
    for (std::size_t i = 1; i < row.size(); ++i)
      line += std::string(gap + widths[i] - display_width(row[i]), ' ') + row[i];
  }
  return lines;
}

std::string cell(const std::optional<double>& fraction) { return fraction ? fmt::format("{:.4f}", *fraction) : "-"; }

// Names of classes, safe on a line, in at most `width` columns.
Row class_names(const Evaluation& evaluation, std::size_t width) {
  Row names;
  for (const auto& [label, counts] : evaluation.classes) names.push_back(cut_in_middle(escaped(label), width));
  return names;
}

constexpr std::size_t widest_name = 24;

std::vector<std::string> score_table(const Evaluation& evaluation) {
  std::vector<Row> rows = {{"class", "precision", "recall", "F1", "texts"}};
  const auto names = class_names(evaluation, widest_name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& counts = evaluation.classes[i].second;
    rows.push_back({names[i], cell(counts.precision()), cell(counts.recall()), cell(counts.f1()),
                    fmt::format("{}", counts.texts)});
  }
  return aligned(rows);
}

// The columns of names over the counts are as wide as fits into a line of 120 columns, but at least 5.
std::vector<std::string> confusion_lines(const Evaluation& evaluation) {
  constexpr std::size_t line_width = 120, narrowest_name = 5;
  const auto names = class_names(evaluation, widest_name);
  std::vector<Row> rows = {{"true \\ predicted"}};
  std::size_t first = display_width(rows[0][0]);
  for (const auto& name : names) first = std::max(first, display_width(name));
  const auto room = (line_width - first) / names.size();
  const auto headings = class_names(evaluation, std::clamp(room - std::min(room, gap), narrowest_name, widest_name));
  rows[0].insert(rows[0].end(), headings.begin(), headings.end());
  auto count = evaluation.confusion.begin();
  for (const auto& name : names) {
    auto& row = rows.emplace_back(Row{name});
    for (std::size_t i = 0; i < names.size(); ++i) row.push_back(fmt::format("{}", *count++));
  }
  return aligned(rows);
}

}  // namespace

std::vector<std::string> class_tables(const Evaluation& evaluation) {
  if (evaluation.classes.empty() || evaluation.classes.size() > most_reported_classes) return {};
  auto lines = score_table(evaluation);
  if (evaluation.confusion.empty()) return lines;
  const auto confusion = confusion_lines(evaluation);
  lines.insert(lines.end(), confusion.begin(), confusion.end());
  return lines;
}

}  // namespace metaformer
