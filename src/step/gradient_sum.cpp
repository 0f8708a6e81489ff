#include "step/gradient_sum.h"

#include <algorithm>

namespace metaformer {

namespace {

using View = ParameterBuffer::View;

// Large enough to be worth a message, small enough for several to be under way.
constexpr std::int64_t bucket_bytes = 25 << 20;

// Neighbouring views, which are sent at once.
struct Bucket {
  std::int64_t offset, count;
};

std::vector<Bucket> buckets_of(ParameterBuffer& parameters, const std::vector<const View*>& views) {
  std::vector<Bucket> buckets;
  for (const auto* view : views) {
    const bool goes_on = !buckets.empty() && buckets.back().offset + buckets.back().count == view->offset &&
                         buckets.back().count * parameters.gradients().element_size() < bucket_bytes;
    if (goes_on)
      buckets.back().count += view->count;
    else
      buckets.push_back({view->offset, view->count});
  }
  return buckets;
}

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
  if (tables.empty()) return rows_of_tables;
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

void add_rows_of_all(ProcessGroup& group, const View& table, const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return;
  const auto gradient_rw = table.parameter.grad().view({-1, table.row_width()});
  const auto row_l = torch::tensor(rows, torch::kLong);
  const auto listed_lw = gradient_rw.index_select(0, row_l);
  group.sum(listed_lw);
  gradient_rw.index_copy_(0, row_l, listed_lw);
  for (const auto row : rows) table.gradient_rows->add(row);
}

}  // namespace

void add_gradients_of_all(ProcessGroup& group, ParameterBuffer& parameters) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  std::vector<const View*> tables, whole;
  for (const auto& view : parameters.views())
    if (view.rate > 0) (view.gradient_rows != nullptr ? tables : whole).push_back(&view);
  const auto rows_of_tables = rows_of_all(group, tables);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (rows_of_tables[i]) continue;
    tables[i]->gradient_rows->add_all();
    whole.push_back(tables[i]);
  }
  std::vector<std::unique_ptr<PendingSum>> sums;
  for (const auto& bucket : buckets_of(parameters, whole))
    sums.push_back(group.start_sum(parameters.gradients().narrow(0, bucket.offset, bucket.count)));
  for (std::size_t i = 0; i < tables.size(); ++i)
    if (rows_of_tables[i]) add_rows_of_all(group, *tables[i], *rows_of_tables[i]);
  for (const auto& sum : sums) sum->wait();
}

void add_gradients_of_shards(ProcessGroup& group, ParameterBuffer& parameters, const std::vector<Shard>& shards) {
  const torch::NoGradGuard no_grad;
  for (const auto& view : parameters.views())
    if (view.gradient_rows != nullptr) view.gradient_rows->add_all();
  const auto most = bucket_bytes / parameters.gradients().element_size();
  std::vector<std::unique_ptr<PendingSum>> sums;
  for (std::size_t rank = 0; rank < shards.size(); ++rank)
    for (std::int64_t done = 0; done < shards[rank].count; done += most) {
      const auto count = std::min(most, shards[rank].count - done);
      sums.push_back(group.start_sum_on(parameters.gradients().narrow(0, shards[rank].first + done, count),
                                        static_cast<int>(rank)));
    }
  for (const auto& sum : sums) sum->wait();
}

}  // namespace metaformer
