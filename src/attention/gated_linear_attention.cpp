// Gated linear attention (GLA, Yang et al. 2024, section 4), with keys of half the width:
//
//   S_t = S_(t-1) diag(w_t) + v_t k_t^T,   w = sigmoid(x W_1 W_2 + b)^(1/16)
//   y = W_o (norm(S q / sqrt(k)) * silu(W_g x))

#include <cmath>

#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

class GatedLinearAttention : public StateMixer {
 public:
  GatedLinearAttention(const GatedLinearAttentionOptions& options, const MixerShape& shape)
      : StateMixer(options, shape, shape.width, shape.width * shape.head_width() / 2),
        query_(register_module("query", Convolved(shape, shape.width / 2, options.convolution))),
        key_(register_module("key", Convolved(shape, shape.width / 2, options.convolution))),
        value_(register_module("value", Convolved(shape, shape.width, options.convolution))),
        gate_(register_module("gate", Linear(shape.width, shape.width, shape.bias))),
        decay_in_(register_module("decay_in", Linear(shape.width, options.rank, /*bias=*/false))),
        decay_out_(register_module("decay_out", Linear(options.rank, shape.width / 2, /*bias=*/true))),
        norm_(register_module("norm", HeadNorm(shape.head_width(), /*learned_gain=*/true))) {}

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    constexpr double root = 16;  // which keeps decays near 1
    const auto of_heads = [&](const torch::Tensor& y_bcd) { return in_wide(split_heads(y_bcd, shape().heads)); };
    const auto q_bnck = of_heads(query_(x_bcd, carried)), k_bnck = of_heads(key_(x_bcd, carried));
    const auto value_bncv = of_heads(value_(x_bcd, carried));
    const auto scale = 1 / std::sqrt(static_cast<double>(q_bnck.size(3)));
    const auto o_bncv =
        carried.mix({.q_bnck = q_bnck * scale,
                     .k_bnck = k_bnck,
                     .value_bncv = value_bncv,
                     .log_decay_bncw = -torch::softplus(-of_heads(decay_out_(decay_in_(x_bcd)))) / root});
    return merge_heads(norm_(o_bncv)).to(x_bcd.scalar_type()) * torch::silu(gate_(x_bcd));
  }

 private:
  Convolved query_, key_, value_;
  Linear gate_, decay_in_, decay_out_;
  HeadNorm norm_;
};

}  // namespace

std::shared_ptr<Mixer> GatedLinearAttentionOptions::make(const MixerShape& shape) const {
  return std::make_shared<GatedLinearAttention>(*this, shape);
}

}  // namespace metaformer
