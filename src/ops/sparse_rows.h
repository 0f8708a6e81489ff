#pragma once
// Tables of which a step uses few rows.

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace metaformer {

// Which rows of a table have a gradient.

// Of a table of which a batch reads few rows. Whoever writes the gradient of a row lists it here, so that clearing,
// norms and updates can pass over all other rows, whose gradients are zero. For one thread at a time.
class GradientRows {
 public:
  explicit GradientRows(std::int64_t rows) : is_listed_(static_cast<std::size_t>(rows)) {}

  void add(std::int64_t row) {
    auto& is_listed = is_listed_[static_cast<std::size_t>(row)];
    if (is_listed == 0) listed_.push_back(row);
    is_listed = 1;
  }

  // The gradient is written as a whole.
  void add_all() { has_all_ = true; }

  void clear() {
    for (const auto row : listed_) is_listed_[static_cast<std::size_t>(row)] = 0;
    listed_.clear();
    has_all_ = false;
  }

  bool has_all() const { return has_all_; }
  const std::vector<std::int64_t>& listed() const { return listed_; }  // each once

 private:
  std::vector<std::uint8_t> is_listed_;
  std::vector<std::int64_t> listed_;
  bool has_all_ = false;
};

// Gradients of tables of which a batch reads few rows, as sparse tensors.

// The sparse gradient of a table of `rows` rows, while it is made: first the rows that were read, then their values.
class SparseRows {
 public:
  explicit SparseRows(std::int64_t rows) : slots_(static_cast<std::size_t>(rows), -1) {}

  void read(std::int64_t row) { slots_[static_cast<std::size_t>(row)] = 0; }

  // Zeros [slots, width], one slot for each row that was read, in their order.
  torch::Tensor make_values(std::int64_t width, const torch::TensorOptions& options);

  const std::int32_t* slots() const { return slots_.data(); }  // by row, of those that were read

  torch::Tensor gradient(const torch::Tensor& values_sd) const;

 private:
  std::vector<std::int32_t> slots_;  // -1: not read
  std::vector<std::int64_t> rows_;   // by slot
};

// From now on `rows`, which must live as long as the table, lists the rows that backward passes give gradients. Those
// passes give the table coalesced gradients then.
void list_gradient_rows(const torch::Tensor& table, GradientRows& rows);

}  // namespace metaformer
