#pragma once
// Relative positions as learned vectors that are added to keys and values (Shaw, Uszkoreit, Vaswani 2018).

#include "ops/layer.h"

namespace metaformer {

class ShawImpl : public Layer {
 public:
  // One vector for each distance -max_distance ... max_distance, to which larger ones are clipped.
  ShawImpl(std::int64_t max_distance, std::int64_t key_width, std::int64_t value_width);

  // q_c . a_(e - c) for every query and key (equation 4), [b, n, c, e]; the queries are the last of the keys.
  torch::Tensor scores(const torch::Tensor& q_bnck, std::int64_t keys) const;

  // sum over e of s_bnce a_(e - c), what the weights add to the values (equation 3): [b, n, c, k].
  torch::Tensor values(const torch::Tensor& weight_bnce) const;

 private:
  // [c, e]: the row of the tables of every pair.
  torch::Tensor row_ce(std::int64_t queries, std::int64_t keys, torch::Device device) const;

  std::int64_t max_distance_;
  torch::Tensor keys_rk_, values_rk_;
};
TORCH_MODULE(Shaw);

}  // namespace metaformer
