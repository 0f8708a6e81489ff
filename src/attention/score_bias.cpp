#include "attention/score_bias.h"

#include <bit>
#include <cmath>

#include "attention/visibility.h"

namespace metaformer {

namespace {

class Alibi : public ScoreBias {
 public:
  explicit Alibi(std::int64_t heads)
      : slope_n11_(register_buffer("slopes", torch::tensor(alibi_slopes(heads), torch::kFloat).view({-1, 1, 1}))) {}

  torch::Tensor forward(std::int64_t queries, std::int64_t keys) override {
    const auto distance_ce = offset_ce(queries, keys, slope_n11_.device()).abs();
    return -slope_n11_ * distance_ce.to(slope_n11_.scalar_type());
  }

 private:
  torch::Tensor slope_n11_;
};

class T5Bias : public ScoreBias {
 public:
  T5Bias(const T5PositionsConfig& config, std::int64_t heads, bool causal)
      : config_(config),
        causal_(causal),
        table_rn_(add_parameter("weight", torch::zeros({config.buckets, heads}),
                                {.init = Init::normal(), .decay = Decay::embeddings})) {}

  torch::Tensor forward(std::int64_t queries, std::int64_t keys) override {
    const auto bucket_ce = t5_bucket_ce(offset_ce(queries, keys, table_rn_.device()), config_, causal_);
    return torch::embedding(table_rn_, bucket_ce).permute({2, 0, 1});
  }

 private:
  T5PositionsConfig config_;
  bool causal_;
  torch::Tensor table_rn_;
};

}  // namespace

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  for (std::int64_t i = 1; i <= heads - power; ++i)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(2 * i - 1) / static_cast<double>(2 * power)));
  return slopes;
}

torch::Tensor t5_bucket_ce(const torch::Tensor& offset_ce, const T5PositionsConfig& config, bool causal) {
  const auto buckets = causal ? config.buckets : config.buckets / 2;
  const auto exact = buckets / 2;
  const auto distance_ce = causal ? (-offset_ce).clamp_min(0) : offset_ce.abs();
  // In float32 and in this order, as T5 does it: at a bucket's edge rounding decides.
  const double span = std::log(static_cast<double>(config.max_distance) / static_cast<double>(exact));
  const auto beyond_ce = (distance_ce.clamp_min(1).to(torch::kFloat) / static_cast<double>(exact)).log() / span *
                         static_cast<double>(buckets - exact);
  const auto far_ce = (exact + beyond_ce.to(torch::kLong)).clamp_max(buckets - 1);
  const auto bucket_ce = torch::where(distance_ce < exact, distance_ce, far_ce);
  return causal ? bucket_ce : bucket_ce + (offset_ce > 0).to(torch::kLong) * buckets;
}

std::shared_ptr<ScoreBias> make_score_bias(const PositionsConfig& positions, std::int64_t heads, bool causal) {
  if (is<AlibiPositionsConfig>(positions)) return std::make_shared<Alibi>(heads);
  if (const auto* t5 = std::get_if<T5PositionsConfig>(&positions)) return std::make_shared<T5Bias>(*t5, heads, causal);
  return nullptr;
}

}  // namespace metaformer
