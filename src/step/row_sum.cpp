#include "step/row_sum.h"

#include <algorithm>

namespace metaformer {

namespace {

using View = ParameterBuffer::View;

// Of a table, the rows that any process has listed, rising; nothing where one of them has them all.
using Rows = std::optional<std::vector<std::int64_t>>;

// -1 for all rows.
std::vector<std::int64_t> numbers_of(const std::vector<const View*>& tables) {
  std::vector<std::int64_t> numbers;
  for (const auto* table : tables) {
    const auto& listed = table->gradient_rows->listed();
    numbers.push_back(table->has_listed_rows() ? std::ssize(listed) : -1);
    if (table->has_listed_rows()) numbers.insert(numbers.end(), listed.begin(), listed.end());
  }
  return numbers;
}

void add_numbers(std::vector<Rows>& rows_of_tables, const std::vector<std::int64_t>& numbers) {
  auto next = numbers.begin();
  for (auto& rows : rows_of_tables) {
    const auto count = *next++;
    if (count < 0) {
      rows.reset();
      continue;
    }
    if (rows) rows->insert(rows->end(), next, next + count);
    next += count;
  }
}

std::vector<Rows> rows_of_all(ProcessGroup& group, const std::vector<const View*>& tables) {
  std::vector<Rows> rows_of_tables(tables.size(), std::vector<std::int64_t>());
  const auto own = numbers_of(tables);
  for (const auto& bytes : group.gather({reinterpret_cast<const char*>(own.data()), own.size() * sizeof(own[0])})) {
    std::vector<std::int64_t> numbers(bytes.size() / sizeof(own[0]));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(numbers.data()));
    add_numbers(rows_of_tables, numbers);
  }
  for (auto& rows : rows_of_tables) {
    if (!rows) continue;
    std::sort(rows->begin(), rows->end());
    rows->erase(std::unique(rows->begin(), rows->end()), rows->end());
  }
  return rows_of_tables;
}

void add_rows(ProcessGroup& group, const View& table, const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return;
  const auto gradient_rw = table.parameter.grad().view({-1, table.row_width()});
  const auto row_l = torch::tensor(rows, torch::kLong);
  const auto listed_lw = gradient_rw.index_select(0, row_l);
  group.sum(listed_lw);
  gradient_rw.index_copy_(0, row_l, listed_lw);
  for (const auto row : rows) table.gradient_rows->add(row);
}

}  // namespace

void add_rows_of_all(ProcessGroup& group, const std::vector<const View*>& tables) {
  if (tables.empty()) return;
  const torch::NoGradGuard no_grad;
  const auto rows_of_tables = rows_of_all(group, tables);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (rows_of_tables[i]) {
      add_rows(group, *tables[i], *rows_of_tables[i]);
      continue;
    }
    tables[i]->gradient_rows->add_all();
    group.sum(tables[i]->parameter.grad());
  }
}

}  // namespace metaformer
