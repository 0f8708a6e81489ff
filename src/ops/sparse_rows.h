#pragma once
// Gradients of tables of which a batch reads few rows, as sparse tensors.

#include <torch/types.h>

#include <vector>

#include "ops/gradient_rows.h"

namespace metaformer {

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
