#include "train/gradient_sum.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "distributed/process_group.h"
#include "model/parameters.h"

namespace metaformer {

namespace {

using View = ParameterBuffer::View;

// The rows of a table that any process has listed, in ascending order; nothing if a process has no list. All processes
// must call it.
std::optional<std::vector<std::int64_t>> rows_of_all(ProcessGroup& group, const View& table) {
  constexpr std::size_t row_bytes = sizeof(std::int64_t);
  const std::string all_rows = "all";  // 3 bytes, as no list of rows has
  const auto& own = table.gradient_rows->listed();
  const auto message = table.has_listed_rows()
                           ? std::string(reinterpret_cast<const char*>(own.data()), own.size() * row_bytes)
                           : all_rows;
  std::vector<std::int64_t> rows;
  for (const auto& bytes : group.gather(message)) {
    if (bytes == all_rows) return std::nullopt;
    const auto before = rows.size();
    rows.resize(before + bytes.size() / row_bytes);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(rows.data() + before));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// Sums the gradients of a table over all processes. Only rows that some process has listed are sent, or all rows if a
// process has no list. All processes must call it, with the same table.
void add_rows_of_all(ProcessGroup& group, const View& table) {
  const torch::NoGradGuard no_grad;
  const auto rows = rows_of_all(group, table);
  if (!rows) {
    table.gradient_rows->add_all();
    return group.sum(table.parameter.grad());
  }
  if (rows->empty()) return;
  const auto gradient_rw = table.parameter.grad().view({-1, table.row_width()});
  const auto row_l = torch::tensor(*rows, torch::kLong);
  const auto listed_lw = gradient_rw.index_select(0, row_l);
  group.sum(listed_lw);
  gradient_rw.index_copy_(0, row_l, listed_lw);
  for (const auto row : *rows) table.gradient_rows->add(row);
}

}  // namespace

// Backward completes the last matrix first, the norms and biases of all layers when it reaches the first layer, and the
// embeddings at the end. The buckets are in this order.
GradientSum::GradientSum(ProcessGroup& group, ParameterBuffer& parameters, const std::vector<Shard>* shards,
                         std::int64_t bucket_bytes)
    : group_(group), parameters_(parameters), shards_(shards), completed_(parameters.views().size()) {
  const auto most = bucket_bytes / parameters.gradients().element_size();
  for (const auto decay : {Decay::matrices, Decay::none, Decay::embeddings})
    for (const auto& bucket : buckets_of_views(decay, most)) add_by_shards(bucket);
  if (shards != nullptr) return;  // the buckets then contain the tables
  for (const auto& view : parameters.views())
    if (view.rate > 0 && view.gradient_rows != nullptr) tables_.push_back(&view);
}

GradientSum::~GradientSum() { reset(); }

void GradientSum::reset() {
  for (const auto& [node, hook] : hooks_) node->del_post_hook(hook);
  hooks_.clear();
  is_watching_ = false;
  started_.clear();
  std::fill(completed_.begin(), completed_.end(), false);
}

std::vector<GradientSum::Bucket> GradientSum::buckets_of_views(Decay decay, std::int64_t most) const {
  const auto& views = parameters_.views();
  std::vector<Bucket> buckets;
  bool goes_on = false;
  for (auto i = views.size(); i-- > 0;) {
    const auto& view = views[i];
    const bool is_sent = view.decay == decay && view.rate > 0 && (view.gradient_rows == nullptr || shards_ != nullptr);
    const bool starts = !std::exchange(goes_on, false);
    if (!is_sent) continue;
    if (starts) buckets.push_back({.offset = view.offset + view.count});
    auto& bucket = buckets.back();
    bucket.count += bucket.offset - view.offset;  // including the gap between two views
    bucket.offset = view.offset;
    bucket.views.push_back(i);
    goes_on = bucket.count < most;
  }
  return buckets;
}

void GradientSum::add_by_shards(const Bucket& bucket) {
  if (shards_ == nullptr) return buckets_.push_back(bucket);
  for (std::size_t rank = 0; rank < shards_->size(); ++rank) {
    const auto& shard = (*shards_)[rank];
    const auto first = std::max(bucket.offset, shard.first),
               end = std::min(bucket.offset + bucket.count, shard.first + shard.count);
    if (first < end)
      buckets_.push_back(
          {.offset = first, .count = end - first, .views = bucket.views, .root = static_cast<int>(rank)});
  }
}

void GradientSum::start_with_backward() {
  is_watching_ = true;
  if (!hooks_.empty()) return;
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
    hooks_.emplace_back(std::move(node), hook);
  }
}

void GradientSum::complete(std::size_t view) {
  if (!is_watching_) return;
  if (completed_[view])
    throw std::logic_error("a gradient was added to after it had been sent: " + parameters_.views()[view].name);
  completed_[view] = true;
  const auto is_complete = [&](const Bucket& bucket) {
    return std::all_of(bucket.views.begin(), bucket.views.end(), [&](std::size_t of) { return completed_[of]; });
  };
  while (started_.size() < buckets_.size() && is_complete(buckets_[started_.size()])) start_next();
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
  for (const auto* table : tables_) add_rows_of_all(group_, *table);
  for (const auto& sum : started_) sum();
  started_.clear();
  std::fill(completed_.begin(), completed_.end(), false);
}

}  // namespace metaformer
