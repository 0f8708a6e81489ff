// An exponential moving average of the values, with a learned decay w of each head that starts at 0.9:
//
//   y = W_o o,   o_t = w o_(t-1) + (1 - w) W_v x_t

#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

constexpr double logit_0_9 = 2.197224577336219;

class MovingAverage : public StateMixer {
 public:
  MovingAverage(const MovingAverageOptions& options, const MixerShape& shape)
      : StateMixer(options, shape, shape.width, /*state=*/shape.width),
        value_(register_module("value", Convolved(shape, shape.width, options.convolution))),
        decay_n_(add_parameter("decay", shape.heads,
                               {.init = {.kind = Init::Kind::uniform, .low = logit_0_9, .high = logit_0_9}})) {}

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    const auto value_bncv = in_wide(split_heads(value_(x_bcd, carried), shape().heads));
    const auto decay_n11 = decay_n_.to(value_bncv.scalar_type()).view({-1, 1, 1});
    const auto of_tokens = [&](const torch::Tensor& x_n11) {
      return x_n11.expand({value_bncv.size(0), -1, value_bncv.size(2), 1});
    };
    const auto o_bncv = carried.mix({.q_bnck = of_tokens(torch::ones_like(decay_n11)),
                                     .k_bnck = of_tokens(torch::sigmoid(-decay_n11)),
                                     .value_bncv = value_bncv,
                                     .log_decay_bncw = of_tokens(-torch::softplus(-decay_n11))});
    return merge_heads(o_bncv).to(x_bcd.scalar_type());
  }

 private:
  Convolved value_;
  torch::Tensor decay_n_;
};

}  // namespace

std::shared_ptr<Mixer> MovingAverageOptions::make(const MixerShape& shape) const {
  return std::make_shared<MovingAverage>(*this, shape);
}

}  // namespace metaformer
