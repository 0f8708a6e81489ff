// Scaled dot product attention (Vaswani et al. 2017, equation 1), several heads.

#include <cmath>

#include "attention/mixer_decoder.h"
#include "attention/score_attention.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

class ScaledDotProduct : public Mixer {
 public:
  ScaledDotProduct(const ScaledDotProductOptions& options, const MixerShape& shape)
      : options_(options),
        shape_(shape),
        query_key_value_(register_module("query_key_value", Linear(shape.width, 3 * shape.width, shape.bias,
                                                                   Init::normal(), /*hidden_matrices=*/3))),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))),
        temperature_n_(add_temperature(*this, shape.heads, options.learned_temperature)),
        positions_(*this, shape, shape.head_width()) {
    if (!options.qk_norm) return;
    const bool learned_gain = !options.learned_temperature;
    query_norm_ = register_module("query_norm", HeadNorm(shape.head_width(), learned_gain));
    key_norm_ = register_module("key_norm", HeadNorm(shape.head_width(), learned_gain));
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    ScoreMixing mixing{.scale = 1 / std::sqrt(static_cast<double>(shape_.head_width())),
                       .dropout = shape_.dropout,
                       .shaw = positions_.shaw(),
                       .distances = positions_.distance_terms(visibility)};
    const bool uses_projection_as_it_is =
        !options_.qk_norm && !positions_.rotates() && !mixing.distances && !pass.wants_scores();
    if (context_bed.is_same(x_bcd) && state == nullptr && uses_projection_as_it_is)
      return output_(
          attend_projection(query_key_value_(x_bcd), shape_.heads, visibility, mixing, options_.backend, pass));
    auto [q_bnck, k_bnek, v_bnek] = project(x_bcd, context_bed, state);
    if (pass.wants_scores()) pass.probe->scored({.left_bnci = tempered(q_bnck), .right_bnej = k_bnek});
    const auto tokens = k_bnek.size(2);
    q_bnck = tempered(positions_.with_content_bias(q_bnck, visibility));
    if (mixing.distances) mixing.distances->bias_n1k = tempered(mixing.distances->bias_n1k);
    const auto t_bnck = attend(positions_.rotated(q_bnck, tokens), positions_.rotated(k_bnek, tokens), v_bnek,
                               visibility, mixing, options_.backend, pass);
    return output_(merge_heads(t_bnck));
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity) const override {
    auto query_gain_nk = gain_of(query_norm_, shape_.heads);
    if (temperature_n_.defined()) query_gain_nk = query_gain_nk * temperature_n_.detach().unsqueeze(1);
    return make_score_decoder({.shape = shape_,
                               .projection = LinearDecoder(query_key_value_),
                               .output = LinearDecoder(output_),
                               .key_begin = shape_.width,
                               .value_begin = 2 * shape_.width,
                               .key_slot = 0,
                               .value_slot = 1,
                               .query_gain_nk = query_gain_nk,
                               .key_gain_nk = gain_of(key_norm_, shape_.heads)},
                              batch, capacity);
  }

  std::optional<ScoreForm> score_form() const override {
    if (options_.qk_norm) return std::nullopt;
    const auto rows = query_key_value_->weight().view({3, shape_.heads, shape_.head_width(), shape_.width});
    return ScoreForm{.left_nrd = rows[0], .right_nrd = rows[1]};
  }

  // Var(q . k) = head width * (variance of a projection)^2; of normalised vectors that variance is 1.
  void scale_initial_scores(double projection_variance) override {
    if (!options_.score_std) return;
    if (options_.learned_temperature) {
      temperature_n_.mul_(*options_.score_std);
    } else if (options_.qk_norm) {
      for (const auto& norm : {query_norm_, key_norm_}) norm->gain().mul_(std::sqrt(*options_.score_std));
    } else {
      const auto queries_and_keys = query_key_value_->weight().narrow(0, 0, 2 * shape_.width);
      queries_and_keys.mul_(std::sqrt(*options_.score_std / projection_variance));
    }
  }

  MixerCost cost(const MixerLoad& load) const override {
    return attention_cost(shape_, load, options_.backend, /*projections=*/4, shape_.head_width(),
                          /*form_operations=*/0);
  }

 private:
  // Vectors of heads, [..., n, c, k], on the side of the queries: with the temperature of their head.
  torch::Tensor tempered(const torch::Tensor& q_nck) const {
    if (!temperature_n_.defined()) return q_nck;
    return q_nck * temperature_n_.view({-1, 1, 1}).to(q_nck.scalar_type());
  }

  // Queries of x; keys and values of all that it sees, with what comes from the state. Those of another sequence are
  // computed once for a state, and then held.
  std::array<torch::Tensor, 3> project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                       MixerState* state) {
    const bool is_held = shape_.crosses && state != nullptr && state->holds(0);
    auto [q_bnck, k_bnek, v_bnek] =
        is_held ? std::array{queries(x_bcd), state->held(0), state->held(1)} : project(x_bcd, context_bed);
    if (options_.qk_norm) q_bnck = query_norm_(q_bnck);
    if (is_held) return {q_bnck, k_bnek, v_bnek};
    if (options_.qk_norm) k_bnek = key_norm_(k_bnek);
    if (state == nullptr) return {q_bnck, k_bnek, v_bnek};
    return {q_bnck, state->extend(0, k_bnek), state->extend(1, v_bnek)};
  }

  std::array<torch::Tensor, 3> project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed) {
    if (context_bed.is_same(x_bcd)) return thirds_bnck(query_key_value_(x_bcd), shape_.heads);
    const auto key_value = part(context_bed, shape_.width, 2 * shape_.width).split(shape_.width, 2);
    return {queries(x_bcd), split_heads(key_value[0], shape_.heads), split_heads(key_value[1], shape_.heads)};
  }

  torch::Tensor queries(const torch::Tensor& x_bcd) const {
    return split_heads(part(x_bcd, 0, shape_.width), shape_.heads);
  }
  // Rows first ... first + rows - 1 of the projection.
  torch::Tensor part(const torch::Tensor& x_bcd, std::int64_t first, std::int64_t rows) const {
    const auto& bias = query_key_value_->bias();
    return torch::linear(x_bcd, query_key_value_->weight().narrow(0, first, rows),
                         bias.defined() ? std::optional(bias.narrow(0, first, rows)) : std::nullopt);
  }

  ScaledDotProductOptions options_;
  MixerShape shape_;
  Linear query_key_value_;  // rows: queries, keys, values
  Linear output_;
  HeadNorm query_norm_{nullptr}, key_norm_{nullptr};  // qk_norm only
  torch::Tensor temperature_n_;                       // undefined: not learned
  ScorePositions positions_;
};

}  // namespace

std::shared_ptr<Mixer> ScaledDotProductOptions::make(const MixerShape& shape) const {
  return std::make_shared<ScaledDotProduct>(*this, shape);
}

}  // namespace metaformer
