// Scaled dot product attention (Vaswani et al. 2017, equation 1) with several heads. Options are a window as in
// Longformer (Beltagy, Peters, Cohan 2020), fewer heads of keys and values, sinks as in gpt-oss (OpenAI 2025), and
// sigmoids in place of the softmax.

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
        query_key_value_(*this, shape, options.key_heads(shape), options.key_heads(shape), shape.head_width()),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))),
        temperature_n_(add_temperature(*this, shape.heads, options.learned_temperature)),
        positions_(*this, shape, shape.head_width(), shape.head_width()) {
    if (options.sinks) sink_n_ = add_parameter("sinks", shape.heads, {.init = Init::zeros()});
    if (options.qk_norm) query_key_value_.add_norms(*this, /*learned_gain=*/!options.learned_temperature);
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& given,
                        MixerState* state, Pass& pass) override {
    TORCH_CHECK(options_.window == 0 || is_end_of(x_bcd, context_bed), "a window has no meaning for another sequence");
    const bool uses_projection_as_it_is = !options_.qk_norm && !shares_keys() && !positions_.rotates() &&
                                          !given.distance_ld.defined() && !pass.wants_scores();
    Visibility own;
    if (context_bed.is_same(x_bcd) && state == nullptr && uses_projection_as_it_is)
      return output_(attend_projection(query_key_value_.project_all(x_bcd), shape_.heads,
                                       seen(given, own, x_bcd.size(1), x_bcd.size(1), pass), mixing_in(given),
                                       options_.backend, pass));
    auto [q_bnck, k_bnek, v_bnek] = query_key_value_.project(x_bcd, context_bed, state, options_.window);
    if (pass.wants_scores())
      pass.probe->scored({.left_bnci = tempered(q_bnck), .right_bnej = with_heads(k_bnek, shape_.heads)});
    const auto tokens = k_bnek.size(2);
    const auto& visibility = seen(given, own, x_bcd.size(1), tokens, pass);
    auto mixing = mixing_in(visibility);
    q_bnck = tempered(positions_.with_content_bias(q_bnck, visibility));
    if (mixing.distances) mixing.distances->bias_n1k = tempered(mixing.distances->bias_n1k);
    const auto t_bnck =
        attend(positions_.rotated(q_bnck, tokens, visibility), positions_.rotated(k_bnek, tokens, visibility), v_bnek,
               visibility, mixing, options_.backend, pass);
    return output_(merge_heads(t_bnck));
  }

  bool reads_by_products() const override { return true; }

  // The decoder supports neither windows, whose state moves with every token, nor sigmoids; forward with a state does.
  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity,
                                        WeightPrecision precision) const override {
    if (options_.window > 0 || options_.weights == AttentionWeights::sigmoid) return nullptr;
    auto query_gain_nk = gain_of(query_key_value_.query_norm(), shape_.heads);
    if (temperature_n_.defined()) query_gain_nk = query_gain_nk * temperature_n_.detach().unsqueeze(1);
    const auto key_heads = options_.key_heads(shape_);
    return make_score_decoder({.shape = shape_,
                               .projection = LinearDecoder(query_key_value_.projection(), precision),
                               .output = LinearDecoder(output_, precision),
                               .key_begin = query_key_value_.query_rows(),
                               .value_begin = query_key_value_.query_rows() + query_key_value_.key_rows(),
                               .key_heads = key_heads,
                               .key_slot = 0,
                               .value_slot = 1,
                               .query_gain_nk = query_gain_nk,
                               .key_gain_nk = gain_of(query_key_value_.key_norm(), key_heads),
                               .sink_n = sink_n_.defined() ? sink_n_.detach() : sink_n_},
                              batch, capacity);
  }

  std::optional<ScoreForm> score_form() const override {
    if (options_.qk_norm) return std::nullopt;
    return query_key_value_.score_form();
  }

  // Var(q . k) = head width * (variance of a projection)^2; for normalised vectors that variance is 1.
  void scale_initial_scores(double projection_variance) override {
    if (!options_.score_std) return;
    if (options_.learned_temperature) {
      temperature_n_.mul_(*options_.score_std);
    } else if (options_.qk_norm) {
      for (const auto& norm : {query_key_value_.query_norm(), query_key_value_.key_norm()})
        norm->gain().mul_(std::sqrt(*options_.score_std));
    } else {
      query_key_value_.score_rows().mul_(std::sqrt(*options_.score_std / projection_variance));
    }
  }

  MixerCost cost(const MixerLoad& load) const override {
    auto seen = load;
    if (options_.window > 0) seen.pairs = std::min(load.pairs, load.tokens * static_cast<double>(options_.window));
    const auto k = shape_.head_width(), of_keys = query_key_value_.key_rows() + query_key_value_.value_rows();
    return attention_cost(shape_, seen, options_.backend,
                          {.rows = 2 * shape_.width + of_keys,
                           .score_width = k,
                           .value_width = k,
                           .activations = 3 * shape_.width + of_keys,
                           .keeps_pairs = options_.weights == AttentionWeights::sigmoid});
  }

 private:
  bool shares_keys() const { return options_.key_heads(shape_) != shape_.heads; }

  // The visibility of the newest `keys` tokens: `given`, or with a window `own`, which is set here.
  const Visibility& seen(const Visibility& given, Visibility& own, std::int64_t queries, std::int64_t keys,
                         const Pass& pass) const {
    if (options_.window == 0) return given;
    const bool not_later = given.causal && !pass.wants_scores();  // as in SharedPositions::add_to
    return own = within_window(given, options_.window, keys, not_later ? keys : keys + queries - 1);
  }

  ScoreMixing mixing_in(const Visibility& visibility) {
    return {.scale = 1 / std::sqrt(static_cast<double>(shape_.head_width())),
            .dropout = shape_.dropout,
            .shaw = positions_.shaw(),
            .distances = positions_.distance_terms(visibility),
            .sink_n = sink_n_,
            .weights = options_.weights};
  }

  // Multiplies vectors on the side of the queries, [..., n, c, k], by the temperature of their head.
  torch::Tensor tempered(const torch::Tensor& q_nck) const {
    if (!temperature_n_.defined()) return q_nck;
    return q_nck * temperature_n_.view({-1, 1, 1}).to(q_nck.scalar_type());
  }

  ScaledDotProductOptions options_;
  MixerShape shape_;
  QueryKeyValue query_key_value_;
  Linear output_;
  torch::Tensor temperature_n_, sink_n_;  // undefined: not learned
  ScorePositions positions_;
};

}  // namespace

std::shared_ptr<Mixer> ScaledDotProductOptions::make(const MixerShape& shape) const {
  return std::make_shared<ScaledDotProduct>(*this, shape);
}

}  // namespace metaformer
