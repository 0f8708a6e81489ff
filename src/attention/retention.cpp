// Multi-scale retention (RetNet, Sun et al. 2023, section 2.2) with inner width d. Head h has decay 1 - 2^(-5 - h) per
// token, queries and keys are rotated by their places, and
//
//   y = W_o (norm(o) * silu(W_g x)),   o_t = sum_s decay^(t - s) q_t.k_s v_s / sqrt(k)

#include <cmath>

#include "attention/state_mixer.h"
#include "ops/attention.h"
#include "ops/functional.h"

namespace metaformer {

namespace {

class Retention : public StateMixer {
 public:
  Retention(const RetentionOptions& options, const MixerShape& shape)
      : StateMixer(options, shape, shape.width, shape.width * shape.head_width()),
        query_(register_module("query", Convolved(shape, shape.width, options.convolution))),
        key_(register_module("key", Convolved(shape, shape.width, options.convolution))),
        value_(register_module("value", Convolved(shape, shape.width, options.convolution))),
        gate_(register_module("gate", Linear(shape.width, shape.width, shape.bias))),
        norm_(register_module("norm", HeadNorm(shape.head_width(), /*learned_gain=*/true))) {}

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    const auto of_heads = [&](Convolved& part) { return split_heads(part(x_bcd, carried), shape().heads); };
    const auto place_c = carried.places(x_bcd);
    const auto scale = 1 / std::sqrt(static_cast<double>(shape().head_width()));
    const auto q_bnck = rotated(of_heads(query_), place_c, scale), k_bnck = rotated(of_heads(key_), place_c, 1);
    const auto sizes = q_bnck.sizes();
    const auto log_decay = log_decay_n11(q_bnck).expand({sizes[0], sizes[1], sizes[2], 1});
    const auto o_bncv = carried.mix(
        {.q_bnck = q_bnck, .k_bnck = k_bnck, .value_bncv = in_wide(of_heads(value_)), .log_decay_bncw = log_decay});
    return merge_heads(norm_(o_bncv)).to(x_bcd.scalar_type()) * torch::silu(gate_(x_bcd));
  }

 private:
  torch::Tensor log_decay_n11(const torch::Tensor& like) const {
    const auto head = torch::arange(shape().heads, torch::TensorOptions().dtype(torch::kDouble).device(like.device()));
    return torch::log1p(-torch::exp2(-5 - head)).to(like.scalar_type()).view({-1, 1, 1});
  }

  // Rotates feature l of the first half and its partner in the second by an angle of place / 10000^(2 l / k), and
  // multiplies by a scale.
  static torch::Tensor rotated(const torch::Tensor& given, const torch::Tensor& place_c, double scale) {
    const auto x_bnck = in_wide(given);
    const auto half = x_bnck.size(3) / 2;
    const auto frequency_l = torch::pow(1e4, -torch::arange(half, place_c.options()) / static_cast<double>(half));
    const auto angle_cl = place_c.unsqueeze(1) * frequency_l;
    const auto type = x_bnck.scalar_type();
    return rotate_pairs(x_bnck, (scale * angle_cl.cos()).to(type), (scale * angle_cl.sin()).to(type));
  }

  Convolved query_, key_, value_;
  Linear gate_;
  HeadNorm norm_;
};

}  // namespace

std::shared_ptr<Mixer> RetentionOptions::make(const MixerShape& shape) const {
  return std::make_shared<Retention>(*this, shape);
}

}  // namespace metaformer
