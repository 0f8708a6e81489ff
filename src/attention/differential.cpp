// Differential attention (Ye et al. 2024, "Differential Transformer"). Two heads of queries and keys, with a softmax
// each, are a pair, whose values are those of both heads side by side:
//   t = norm((A_1 - lambda A_2) V) (1 - lambda_init)
//   lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init
//   lambda_init = 0.8 - 0.6 exp(-0.3 layer), the first layer being 0
// The norm is RMS over the pair, with a learned gain.

#include <cmath>

#include "attention/score_attention.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

class Differential : public Mixer {
 public:
  Differential(const DifferentialOptions& options, const MixerShape& shape)
      : options_(options),
        shape_(shape),
        lambda_init_(0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(shape.layer))),
        query_key_value_(*this, shape, shape.heads, pairs(), 2 * shape.head_width()),
        norm_(register_module("norm", HeadNorm(2 * shape.head_width(), /*learned_gain=*/true))),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))),
        positions_(*this, shape, shape.head_width(), 2 * shape.head_width()) {
    const ParameterSpec spec{.init = Init::normal(0.1)};
    lambda_q1_k_ = add_parameter("lambda_q1", shape.head_width(), spec);
    lambda_k1_k_ = add_parameter("lambda_k1", shape.head_width(), spec);
    lambda_q2_k_ = add_parameter("lambda_q2", shape.head_width(), spec);
    lambda_k2_k_ = add_parameter("lambda_k2", shape.head_width(), spec);
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    const auto [q_bnck, k_bnek, value_bpej] = query_key_value_.project(x_bcd, context_bed, state);
    if (pass.wants_scores()) pass.probe->scored({.left_bnci = q_bnck, .right_bnej = k_bnek});
    const ScoreMixing mixing{.scale = 1 / std::sqrt(static_cast<double>(shape_.head_width())),
                             .dropout = shape_.dropout,
                             .shaw = positions_.shaw(),
                             .distances = positions_.distance_terms(visibility)};
    const auto tokens = k_bnek.size(2);
    const auto query_bnck = positions_.rotated(positions_.with_content_bias(q_bnck, visibility), tokens, visibility);
    const auto t_bncj = attend(query_bnck, positions_.rotated(k_bnek, tokens, visibility), value_bpej, visibility,
                               mixing, options_.backend, pass);
    const auto t_bp2cj = t_bncj.unflatten(1, {pairs(), 2});
    const auto difference_bpcj = t_bp2cj.select(2, 0) - lambda().to(t_bncj.scalar_type()) * t_bp2cj.select(2, 1);
    return output_(merge_heads(norm_(difference_bpcj) * (1 - lambda_init_)));
  }

  std::optional<ScoreForm> score_form() const override { return query_key_value_.score_form(); }

  // As in scaled dot product attention.
  void scale_initial_scores(double projection_variance) override {
    if (options_.score_std) query_key_value_.score_rows().mul_(std::sqrt(*options_.score_std / projection_variance));
  }

  MixerCost cost(const MixerLoad& load) const override {
    const auto d = shape_.width;
    return attention_cost(shape_, load, options_.backend,
                          {.rows = 4 * d,
                           .score_width = shape_.head_width(),
                           .value_width = 2 * shape_.head_width(),
                           .activations = 9 * d});
  }

 private:
  std::int64_t pairs() const { return shape_.heads / 2; }

  torch::Tensor lambda() const {
    return (lambda_q1_k_ * lambda_k1_k_).sum().exp() - (lambda_q2_k_ * lambda_k2_k_).sum().exp() + lambda_init_;
  }

  DifferentialOptions options_;
  MixerShape shape_;
  double lambda_init_;
  QueryKeyValue query_key_value_;  // heads 2 p and 2 p + 1 are pair p, and so are their values
  HeadNorm norm_;
  Linear output_;
  torch::Tensor lambda_q1_k_, lambda_k1_k_, lambda_q2_k_, lambda_k2_k_;
  ScorePositions positions_;
};

}  // namespace

std::shared_ptr<Mixer> DifferentialOptions::make(const MixerShape& shape) const {
  return std::make_shared<Differential>(*this, shape);
}

}  // namespace metaformer
