#include "ops/sparse_rows.h"

namespace metaformer {

torch::Tensor SparseRows::make_values(std::int64_t width, const torch::TensorOptions& options) {
  for (std::size_t row = 0; row < slots_.size(); ++row) {
    if (slots_[row] < 0) continue;
    slots_[row] = static_cast<std::int32_t>(rows_.size());
    rows_.push_back(static_cast<std::int64_t>(row));
  }
  return torch::zeros({std::ssize(rows_), width}, options);
}

torch::Tensor SparseRows::gradient(const torch::Tensor& values_sd) const {
  const auto indices_1s = torch::tensor(rows_, torch::kLong).unsqueeze(0);
  return at::_sparse_coo_tensor_with_dims_and_tensors(/*sparse_dim=*/1, /*dense_dim=*/1,
                                                      {std::ssize(slots_), values_sd.size(1)}, indices_1s, values_sd,
                                                      values_sd.options().layout(torch::kSparse),
                                                      /*is_coalesced=*/true);
}

void list_gradient_rows(const torch::Tensor& table, GradientRows& rows) {
  table.register_hook([&rows](const torch::Tensor& gradient) {
    if (!gradient.is_sparse()) {
      rows.add_all();
      return gradient;
    }
    const torch::NoGradGuard no_grad;
    auto coalesced = gradient.coalesce();
    const auto indices_s = coalesced._indices().select(0, 0).contiguous();
    const auto* index = indices_s.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < indices_s.numel(); ++i) rows.add(index[i]);
    return coalesced;
  });
}

}  // namespace metaformer
