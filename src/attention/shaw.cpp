#include "attention/shaw.h"

#include "attention/visibility.h"

namespace metaformer {

ShawImpl::ShawImpl(std::int64_t max_distance, std::int64_t key_width, std::int64_t value_width)
    : max_distance_(max_distance) {
  const auto rows = 2 * max_distance + 1;
  const ParameterSpec spec{.init = Init::normal(), .decay = Decay::embeddings};
  keys_rk_ = add_parameter("keys", torch::zeros({rows, key_width}), spec);
  values_rk_ = add_parameter("values", torch::zeros({rows, value_width}), spec);
}

torch::Tensor ShawImpl::row_ce(std::int64_t queries, std::int64_t keys, torch::Device device) const {
  return offset_ce(queries, keys, device).clamp(-max_distance_, max_distance_) + max_distance_;
}

// A product with the few rows of the table, from which every pair takes one: nothing of size c e k.
torch::Tensor ShawImpl::scores(const torch::Tensor& q_bnck, std::int64_t keys) const {
  const auto of_row_bncr = torch::matmul(q_bnck, keys_rk_.to(q_bnck.scalar_type()).t());
  const auto row = row_ce(q_bnck.size(2), keys, q_bnck.device());
  return of_row_bncr.gather(3, row.expand({q_bnck.size(0), q_bnck.size(1), -1, -1}));
}

torch::Tensor ShawImpl::values(const torch::Tensor& weight_bnce) const {
  const auto row = row_ce(weight_bnce.size(2), weight_bnce.size(3), weight_bnce.device());
  auto sizes = weight_bnce.sizes().vec();
  sizes[3] = values_rk_.size(0);
  const auto of_row_bncr =
      torch::zeros(sizes, weight_bnce.options()).scatter_add(3, row.expand_as(weight_bnce), weight_bnce);
  return torch::matmul(of_row_bncr, values_rk_.to(weight_bnce.scalar_type()));
}

}  // namespace metaformer
