// Mamba-2 (Dao and Gu 2024, section 7) with one group. Values x, a gate z, and B and C, which all heads share, are
// projections of the input. x, B and C pass a short convolution and SiLU. Each head has a step for every token, and
//
//   S_t = exp(-step_t exp(A_log)) S_(t-1) + step_t x_t B_t^T,   y = W_o norm((S C + D x) * silu(z))

#include <cmath>

#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

class Mamba2 : public StateMixer {
 public:
  Mamba2(const Mamba2Options& options, const MixerShape& shape)
      : StateMixer(options, shape, options.expand * shape.width, options.expand * shape.width * options.state),
        value_(register_module("value", Convolved(shape, options.expand * shape.width, options.convolution))),
        key_query_(
            register_module("key_query", Convolved(shape, 2 * options.state, options.convolution, /*matrices=*/2))),
        gate_(register_module("gate", Linear(shape.width, options.expand * shape.width, shape.bias))),
        step_(register_module("step", Linear(shape.width, shape.heads, /*bias=*/false))),
        value_bias_(add_bias("value_bias", options.expand * shape.width, options)),
        key_query_bias_(add_bias("key_query_bias", 2 * options.state, options)),
        step_bias_n_(add_parameter("step_bias", shape.heads, {.init = steps_from_1e_3_to_1e_1})),
        log_rate_n_(add_parameter("log_rate", shape.heads, {.init = log_of_1_to_16})),
        skip_n_(add_parameter("skip", shape.heads, {.init = Init::ones()})),
        gain_v_(add_parameter("norm", options.expand * shape.width, {.init = Init::ones()})) {}

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    constexpr double epsilon = 1e-5;
    const auto heads = shape().heads;
    const auto activated = [&](Convolved& part, const torch::Tensor& bias) {
      return in_wide(part(x_bcd, carried, /*silu=*/true, bias));
    };
    const auto value_bncv = split_heads(activated(value_, value_bias_), heads);
    const auto key_query = activated(key_query_, key_query_bias_).unsqueeze(1).chunk(2, 3);
    const auto of_all_heads = [&](const torch::Tensor& k_b1ck) { return k_b1ck.expand({-1, heads, -1, -1}); };
    const auto step_bnc1 = torch::softplus(in_wide(step_(x_bcd)) + step_bias_n_).transpose(1, 2).unsqueeze(3);
    const auto o_bncv = carried.mix({.q_bnck = of_all_heads(key_query[1]),
                                     .k_bnck = of_all_heads(key_query[0]),
                                     .value_bncv = step_bnc1 * value_bncv,
                                     .log_decay_bncw = -step_bnc1 * log_rate_n_.exp().view({-1, 1, 1})});
    const auto y_bcv = merge_heads(o_bncv + skip_n_.view({-1, 1, 1}) * value_bncv);
    return rms_norm(y_bcv * torch::silu(in_wide(gate_(x_bcd))), gain_v_, epsilon).to(x_bcd.scalar_type());
  }

 private:
  torch::Tensor add_bias(const std::string& name, std::int64_t features, const Mamba2Options& options) {
    return options.convolution > 0 ? add_parameter(name, features, {.init = Init::zeros()}) : torch::Tensor();
  }

  Convolved value_, key_query_;
  Linear gate_, step_;
  torch::Tensor value_bias_, key_query_bias_;
  torch::Tensor step_bias_n_, log_rate_n_, skip_n_, gain_v_;
};

}  // namespace

std::shared_ptr<Mixer> Mamba2Options::make(const MixerShape& shape) const {
  return std::make_shared<Mamba2>(*this, shape);
}

}  // namespace metaformer
