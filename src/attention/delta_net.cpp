// DeltaNet (Yang et al. 2024, "Parallelizing linear transformers with the delta rule over sequence length") and Gated
// DeltaNet (Yang, Kautz, Hatamizadeh 2025). Queries, keys and values pass a short convolution and SiLU, and queries and
// keys have length 1:
//
//   S_t = decay_t S_(t-1) (1 - rate_t k_t k_t^T) + rate_t v_t k_t^T,   rate = sigmoid(W_b x)
//
// DeltaNet has decay 1 and y = W_o norm(S q / sqrt(k)). Gated DeltaNet has keys of half the width, decay =
// exp(-exp(A_log) softplus(W_a x + b)), and y = W_o (norm(S q / sqrt(k)) * silu(W_g x)).

#include <cmath>

#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

class DeltaNet : public StateMixer {
 public:
  DeltaNet(const StateMixerOptions& options, const MixerShape& shape, bool gated)
      : StateMixer(options, shape, shape.width, shape.heads * key_width(shape, gated) * shape.head_width(),
                   /*delta_rule=*/true),
        query_(register_module("query", Convolved(shape, shape.heads * key_width(shape, gated), options.convolution))),
        key_(register_module("key", Convolved(shape, shape.heads * key_width(shape, gated), options.convolution))),
        value_(register_module("value", Convolved(shape, shape.width, options.convolution))),
        rate_(register_module("rate", Linear(shape.width, shape.heads, /*bias=*/false))),
        norm_(register_module("norm", HeadNorm(shape.head_width(), /*learned_gain=*/true))) {
    if (!gated) return;
    gate_ = register_module("gate", Linear(shape.width, shape.width, shape.bias));
    decay_ = register_module("decay", Linear(shape.width, shape.heads, /*bias=*/false));
    decay_bias_n_ = add_parameter("decay_bias", shape.heads, {.init = steps_from_1e_3_to_1e_1});
    log_rate_n_ = add_parameter("log_rate", shape.heads, {.init = log_of_1_to_16});
  }

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    const auto of_heads = [&](Convolved& part) {
      return in_wide(split_heads(part(x_bcd, carried, /*silu=*/true), shape().heads));
    };
    const auto by_head = [](const torch::Tensor& x_bcn) { return x_bcn.transpose(1, 2).unsqueeze(3); };
    const auto query_bnck = of_heads(query_), key_bnck = of_heads(key_);
    const auto q_bnck = with_length(1 / std::sqrt(static_cast<double>(query_bnck.size(3))), query_bnck),
               k_bnck = with_length(1, key_bnck);
    const auto rate_bnc1 = by_head(torch::sigmoid(in_wide(rate_(x_bcd))));
    StateSteps steps{.q_bnck = q_bnck, .k_bnck = k_bnck, .value_bncv = rate_bnc1 * of_heads(value_), .b_bnck = k_bnck};
    auto removed_bnc1 = -rate_bnc1;
    if (!gate_.is_empty()) {
      const auto log_decay_bcn = -log_rate_n_.exp() * torch::softplus(in_wide(decay_(x_bcd)) + decay_bias_n_);
      steps.log_decay_bncw = by_head(log_decay_bcn);
      removed_bnc1 = removed_bnc1 * steps.log_decay_bncw.exp();
    }
    steps.a_bnck = removed_bnc1 * k_bnck;
    const auto y_bcv = merge_heads(norm_(carried.mix(steps))).to(x_bcd.scalar_type());
    return gate_.is_empty() ? y_bcv : y_bcv * torch::silu(gate_(x_bcd));
  }

 private:
  static std::int64_t key_width(const MixerShape& shape, bool gated) { return shape.head_width() / (gated ? 2 : 1); }

  Convolved query_, key_, value_;
  Linear rate_;
  HeadNorm norm_;
  Linear gate_{nullptr}, decay_{nullptr};  // of Gated DeltaNet
  torch::Tensor decay_bias_n_, log_rate_n_;
};

}  // namespace

std::shared_ptr<Mixer> DeltaNetOptions::make(const MixerShape& shape) const {
  return std::make_shared<DeltaNet>(*this, shape, /*gated=*/false);
}

std::shared_ptr<Mixer> GatedDeltaNetOptions::make(const MixerShape& shape) const {
  return std::make_shared<DeltaNet>(*this, shape, /*gated=*/true);
}

}  // namespace metaformer
