#include "train/gradient_sum.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>

#include "distributed/process_group.h"
#include "model/parameters.h"

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

// Adds up the gradients of the tables on all processes, sending only rows that one of them has listed. Of a table that
// one has no list of, all rows are sent. To be called by all, with the same tables.
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

}  // namespace

// Backward completes the last matrix first, norms and biases of all layers when it has come to the first, and
// embeddings at the end.
GradientSum::GradientSum(ProcessGroup& group, ParameterBuffer& parameters, const std::vector<Shard>* shards,
                         std::int64_t bucket_bytes)
    : group_(group), parameters_(parameters), shards_(shards), completed_(parameters.views().size()) {
  const auto most = bucket_bytes / parameters.gradients().element_size();
  for (const auto decay : {Decay::matrices, Decay::none, Decay::embeddings})
    for (const auto& bucket : buckets_of_views(decay, most))
      for (auto& piece : cut_by_shards(bucket)) buckets_.push_back(std::move(piece));
  if (shards != nullptr) return;  // rows are then sent as they lie
  for (const auto& view : parameters.views())
    if (view.rate > 0 && view.gradient_rows != nullptr) tables_.push_back(&view);
}

GradientSum::~GradientSum() {
  for (const auto& watch : watches_) watch.node->del_post_hook(watch.hook);
}

std::vector<GradientSum::Bucket> GradientSum::buckets_of_views(Decay decay, std::int64_t most) const {
  const auto& views = parameters_.views();
  std::vector<Bucket> buckets;
  bool goes_on = false;
  for (auto i = views.size(); i-- > 0;) {
    const auto& view = views[i];
    const bool is_sent = view.decay == decay && view.rate > 0 && (view.gradient_rows == nullptr || shards_ != nullptr);
    if (!is_sent) {
      goes_on = false;
      continue;
    }
    if (!goes_on) buckets.push_back({.offset = view.offset + view.count});
    auto& bucket = buckets.back();
    bucket.count += bucket.offset - view.offset;  // with what lies between two views
    bucket.offset = view.offset;
    bucket.views.push_back(i);
    goes_on = bucket.count < most;
  }
  return buckets;
}

std::vector<GradientSum::Bucket> GradientSum::cut_by_shards(const Bucket& bucket) const {
  if (shards_ == nullptr) return {bucket};
  std::vector<Bucket> pieces;
  for (std::size_t rank = 0; rank < shards_->size(); ++rank) {
    const auto& shard = (*shards_)[rank];
    const auto first = std::max(bucket.offset, shard.first),
               end = std::min(bucket.offset + bucket.count, shard.first + shard.count);
    if (first >= end) continue;
    pieces.push_back({.offset = first, .count = end - first, .views = bucket.views, .root = static_cast<int>(rank)});
  }
  return pieces;
}

void GradientSum::watch_backward() {
  const auto& views = parameters_.views();
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i].rate == 0 || views[i].gradient_rows != nullptr) continue;
    using torch::autograd::variable_list;
    auto node = torch::autograd::impl::grad_accumulator(views[i].parameter);
    const auto hook = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, i](const variable_list& outputs, const variable_list&) {
          complete(i);
          return outputs;
        }));
    watches_.push_back({std::move(node), hook});
  }
}

void GradientSum::start_with_backward() {
  if (watches_.empty()) watch_backward();
  is_watching_ = true;
}

void GradientSum::complete(std::size_t view) {
  if (!is_watching_) return;
  if (completed_[view])
    throw std::logic_error("a gradient was added to after it had been sent: " + parameters_.views()[view].name);
  completed_[view] = true;
  while (started_.size() < buckets_.size() && is_complete(buckets_[started_.size()])) start_next();
}

bool GradientSum::is_complete(const Bucket& bucket) const {
  return std::all_of(bucket.views.begin(), bucket.views.end(), [&](std::size_t view) { return completed_[view]; });
}

void GradientSum::start_next() {
  const torch::NoGradGuard no_grad;
  const auto& bucket = buckets_[started_.size()];
  const auto gradients = parameters_.gradients().narrow(0, bucket.offset, bucket.count);
  started_.push_back(bucket.root ? group_.start_sum_on(gradients, *bucket.root) : group_.start_sum(gradients));
}

void GradientSum::finish() {
  is_watching_ = false;
  if (shards_ != nullptr)
    for (const auto& view : parameters_.views())
      if (view.gradient_rows != nullptr) view.gradient_rows->add_all();
  while (started_.size() < buckets_.size()) start_next();
  add_rows_of_all(group_, tables_);
  for (const auto& sum : started_) sum->wait();
  started_.clear();
  std::fill(completed_.begin(), completed_.end(), false);
}

}  // namespace metaformer
