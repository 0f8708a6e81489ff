// Linear attention (Katharopoulos et al. 2020) and Based's features (Arora et al. 2024, section 3.1):
//
//   y_t = sum_s f(q_t).f(k_s) v_s / sum_s f(q_t).f(k_s), over the tokens s up to t
//
// The denominator is computed as a feature of the values that is always 1.

#include <cmath>

#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

class LinearAttention : public StateMixer {
 public:
  LinearAttention(const LinearAttentionOptions& options, const MixerShape& shape, std::int64_t key_width)
      : StateMixer(options, shape, shape.width,
                   shape.heads * feature_count(options, key_width) * (shape.head_width() + 1)),
        options_(options),
        query_(register_module("query", Convolved(shape, shape.heads * key_width, options.convolution))),
        key_(register_module("key", Convolved(shape, shape.heads * key_width, options.convolution))),
        value_(register_module("value", Convolved(shape, shape.width, options.convolution))) {}

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    const auto of_heads = [&](Convolved& part) { return split_heads(part(x_bcd, carried), shape().heads); };
    const auto q_bnck = features(of_heads(query_)), k_bnck = features(of_heads(key_));
    const auto value_bncv = in_wide(of_heads(value_));
    const auto with_one = torch::constant_pad_nd(value_bncv, {0, 1}, 1);
    const auto o_bncv = carried.mix({.q_bnck = q_bnck, .k_bnck = k_bnck, .value_bncv = with_one});
    const auto width = value_bncv.size(3);
    const auto sum_bnc1 = o_bncv.narrow(3, width, 1);
    // Padding reads 0, and its denominator is 0, too.
    return merge_heads(o_bncv.narrow(3, 0, width) / sum_bnc1.masked_fill(sum_bnc1 == 0, 1)).to(x_bcd.scalar_type());
  }

 private:
  static std::int64_t feature_count(const LinearAttentionOptions& options, std::int64_t k) {
    return options.features == LinearFeatures::elu ? k : 1 + k + k * (k + 1) / 2;
  }

  torch::Tensor features(const torch::Tensor& given) const {
    const auto x_bnck = in_wide(given);
    if (options_.features == LinearFeatures::elu) return torch::elu(x_bnck) + 1;
    // 1 + s + s^2 / 2 for s = q.k / sqrt(k) is the dot product of these features. x_i x_j and x_j x_i are one feature,
    // number i (i + 1) / 2 + j of a triangle.
    const auto k = x_bnck.size(3);
    const auto number = torch::arange(k * (k + 1) / 2, x_bnck.options().dtype(torch::kDouble));
    const auto row = ((8 * number + 1).sqrt() - 1).div(2).floor(), column = number - row * (row + 1) / 2;
    const auto scaled = x_bnck * std::pow(static_cast<double>(k), -0.25);
    const auto products =
        scaled.index_select(3, row.to(torch::kLong)) * scaled.index_select(3, column.to(torch::kLong));
    const auto factors = 1 + (std::sqrt(0.5) - 1) * (row == column).to(x_bnck.scalar_type());
    return torch::cat({torch::ones_like(x_bnck.narrow(3, 0, 1)), scaled, products * factors}, 3);
  }

  LinearAttentionOptions options_;
  Convolved query_, key_, value_;
};

}  // namespace

std::shared_ptr<Mixer> LinearAttentionOptions::make(const MixerShape& shape) const {
  return std::make_shared<LinearAttention>(*this, shape, key_width(shape));
}

}  // namespace metaformer
