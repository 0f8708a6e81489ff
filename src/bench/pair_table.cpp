#include "bench/pair_table.h"

namespace metaformer {

double pair_table_bytes(std::int64_t batch, std::int64_t heads, std::int64_t context, std::int64_t head_width,
                        std::int64_t element_bytes) {
  const auto pairs = [](std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n + 1) / 2; };
  return static_cast<double>(batch * heads * element_bytes) * pairs(context) * pairs(head_width);
}

torch::Tensor pair_table_scores(const torch::Tensor& p_bnck, const torch::Tensor& packed_nl) {
  const auto context = p_bnck.size(2), width = p_bnck.size(3);
  const auto indices = torch::TensorOptions().dtype(torch::kLong).device(p_bnck.device());
  const auto tokens = torch::tril_indices(context, context, 0, indices),
             features = torch::tril_indices(width, width, 0, indices);
  const auto at = [&](std::int64_t token, std::int64_t feature) {
    return p_bnck.index_select(2, tokens[token]).index_select(3, features[feature]);
  };
  // An off-diagonal entry of M stands for two terms, a diagonal one for one.
  const auto mirrored = (features[0] != features[1]).to(p_bnck.scalar_type());
  const auto table_bnpl = at(0, 0) * at(1, 1) + at(0, 1) * at(1, 0) * mirrored;
  const auto score_bnp = torch::matmul(table_bnpl, packed_nl.unsqueeze(2)).squeeze(3);
  auto score_bnce = torch::zeros({p_bnck.size(0), p_bnck.size(1), context, context}, p_bnck.options());
  const auto all = torch::indexing::Slice();
  score_bnce.index_put_({all, all, tokens[0], tokens[1]}, score_bnp);
  score_bnce.index_put_({all, all, tokens[1], tokens[0]}, score_bnp);
  return score_bnce;
}

}  // namespace metaformer
