#pragma once
// Positions as numbers that are added to the scores of every pair of tokens, the same in all layers.

#include <memory>

#include "config/positions_config.h"
#include "ops/layer.h"

namespace metaformer {

class ScoreBias : public Layer {
 public:
  // [n, c, e], to be added to the scaled scores of the last `queries` of `keys` tokens.
  virtual torch::Tensor forward(std::int64_t queries, std::int64_t keys) = 0;
};

// Nothing for positions of another kind. `causal`: no token attends to a later one.
std::shared_ptr<ScoreBias> make_score_bias(const PositionsConfig& positions, std::int64_t heads, bool causal);

// ALiBi's slope of every head (Press, Smith, Lewis 2022): 2^(-8 / n), and its powers, for n heads where n is a power of
// two; else those of the next lower power of two, followed by every second one of twice that power.
std::vector<double> alibi_slopes(std::int64_t heads);

// The bucket of each offset (key minus query): T5's (Raffel et al. 2020). Half of the buckets hold one distance each,
// the others grow logarithmically up to max_distance. Not causal: the upper half of the buckets is for later keys.
torch::Tensor t5_bucket_ce(const torch::Tensor& offset_ce, const T5PositionsConfig& config, bool causal);

}  // namespace metaformer
