#include "attention/score_attention.h"

#include <limits>

#include "ops/dropout.h"
#include "ops/host_attention.h"

namespace metaformer {

torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& value_bnek,
                            const Visibility& visibility, double scale, double dropout) {
  const auto visible = visible_bce(visibility, score_bnce.size(2), score_bnce.size(3), score_bnce.device());
  auto scaled = score_bnce * scale;
  torch::Tensor weight_bnce;
  if (visible.defined()) {
    const auto visible_bnce = visible.unsqueeze(1);
    scaled = scaled.masked_fill(visible_bnce.logical_not(), -std::numeric_limits<double>::infinity());
    // softmax of a row of -inf is NaN; such a row has nothing to mix.
    weight_bnce = torch::_safe_softmax(scaled, -1);
  } else {
    weight_bnce = torch::softmax(scaled, -1);
  }
  weight_bnce = metaformer::dropout(weight_bnce, dropout);
  return torch::matmul(weight_bnce.to(value_bnek.scalar_type()), value_bnek);
}

torch::Tensor composed_attention(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                 const torch::Tensor& value_bnek, const Visibility& visibility, double scale,
                                 double dropout) {
  if (can_attend_on_host(q_bnck, k_bnek, value_bnek, visibility))
    return host_attention(q_bnck, k_bnek, value_bnek, visibility, scale, dropout);
  const auto queries = q_bnck.size(2), keys = k_bnek.size(2);
  const bool by_row_order = visibility.causal && visibility.is_plain() && queries == keys;
  std::optional<torch::Tensor> mask;
  if (!by_row_order) {
    if (const auto visible = visible_bce(visibility, queries, keys, q_bnck.device()); visible.defined())
      mask = visible.unsqueeze(1);
  }
  return at::scaled_dot_product_attention(q_bnck, k_bnek, value_bnek, mask, dropout, by_row_order, scale);
}

}  // namespace metaformer
