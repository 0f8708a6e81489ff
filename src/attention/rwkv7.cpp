// The time mix of RWKV-7 (Peng et al. 2025, section 4). Each of six inputs is a mixture of the token and the one before
// it. r, k and v are projections of such inputs; decays w, rates a and gates g come from products of low rank:
//
//   u = k * key_direction / |.| (by head),   k' = k (1 + (a - 1) key_share)
//   S_t = S_(t-1) (diag(w) - u (u * a)^T) + v k'^T
//   y = W_o ((norm(S r) + (r . bonus . k') v) * g)
//
// Later blocks mix their values with those of the first. Initial values are those of the published code for each
// feature and block. In that code the base of the decays has twice the learning rate; here train.rate_factors can set
// it.

#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/state_mixer.h"
#include "ops/attention.h"

namespace metaformer {

namespace {

using torch::Tensor;

// base_d + f(x W_in) W_out.
class LowRankImpl : public Layer {
 public:
  LowRankImpl(std::int64_t width, double ranks_of_root, const Tensor& base_d)
      : in_rd_(add_parameter("in", {rank(width, ranks_of_root), width}, {.init = Init::zeros()})),
        out_dr_(add_parameter("out", {width, rank(width, ranks_of_root)}, {.init = Init::orthogonal(0.1)})) {
    if (base_d.defined()) base_d_ = add_parameter("base", base_d, {.init = Init::given()});
  }

  template <class Function = std::identity>
  Tensor forward(const Tensor& x_bcd, const Function& f = {}) {
    const auto y_bcd = torch::linear(f(torch::linear(x_bcd, in_rd_)), out_dr_);
    return base_d_.defined() ? in_wide(y_bcd) + base_d_ : y_bcd;
  }

 private:
  // The published rank: 32 times a rounded number.
  static std::int64_t rank(std::int64_t width, double ranks_of_root) {
    return std::max<std::int64_t>(32, 32 * std::llround(ranks_of_root * std::sqrt(static_cast<double>(width)) / 32));
  }

  Tensor in_rd_, out_dr_, base_d_;
};
TORCH_MODULE(LowRank);

// Functions of the feature's index, from which initial values are computed.
struct Features {
  explicit Features(const MixerShape& shape) {
    const auto d = static_cast<double>(shape.width), k = static_cast<double>(shape.head_width());
    const auto place = torch::arange(shape.width, torch::kDouble);
    share = place / d;
    even = place / std::max(1.0, d - 1);
    const auto middle = std::max(0.5, (k - 1) / 2);
    zigzag = (place.remainder(k) - middle) / middle;
    zigzag = zigzag * zigzag.abs();
  }

  static Tensor as_parameter(const Tensor& value) { return value.to(torch::kFloat).to(module_device()); }

  Tensor share, even, zigzag;  // 0 to almost 1; 0 to 1; -1 to 1 in every head
};

class Rwkv7 : public StateMixer {
 public:
  Rwkv7(const Rwkv7Options& options, const MixerShape& shape)
      : StateMixer(options, shape, shape.width, shape.width * shape.head_width(), /*delta_rule=*/true) {
    const Features of(shape);
    const auto d = shape.width;
    const double depth = static_cast<double>(shape.layer) /
                         static_cast<double>(std::max<std::int64_t>(1, shape.layers - 1)),
                 left = 1 - static_cast<double>(shape.layer) / static_cast<double>(shape.layers);
    // For receptances, decays, keys, values, rates and gates.
    constexpr std::array exponents = {0.2, 0.9, 0.7, 0.7, 0.9, 0.2};
    std::vector<Tensor> mixtures;
    for (const double exponent : exponents) mixtures.push_back(1 - of.share.pow(exponent * left));
    mixture_id_ = given("mixture", torch::stack(mixtures));
    const auto bound = 1 / std::sqrt(static_cast<double>(d));
    const auto projection = [&](const char* name, double factor) {
      return register_module(name, Linear(d, d, shape.bias, Init::uniform(factor * bound)));
    };
    receptance_ = projection("receptance", 0.5);
    key_ = projection("key", 0.05);
    value_ = projection("value", 0.5);
    const auto low_rank = [&](const char* name, double ranks_of_root, const Tensor& base) {
      return register_module(name, LowRank(d, ranks_of_root, base.defined() ? Features::as_parameter(base) : base));
    };
    decay_ = low_rank("decay", 2.5, -5.5 + 6 * of.even.pow(1 + std::pow(depth, 0.3)) + 2.5 * of.zigzag);
    rate_ = low_rank("rate", 2.5, -0.19 + 0.3 * of.zigzag + 0.4 * (of.even - 0.5));
    if (!shape.is_first_of_kind) first_share_ = low_rank("first_share", 1.7, 0.73 - 0.4 * (of.even - 0.5));
    gate_ = low_rank("gate", 5, {});
    key_direction_d_ = given("key_direction", 0.71 - 0.1 * (of.even - 0.5));
    key_share_d_ = given("key_share", torch::full_like(of.even, 1.02));
    bonus_d_ = given("bonus", torch::full_like(of.even, -0.04));
    norm_weight_d_ = add_parameter("norm_weight", d, {.init = Init::ones()});
    norm_bias_d_ = add_parameter("norm_bias", d, {.init = Init::zeros()});
  }

 protected:
  Tensor read(const Tensor& x_bcd, CarriedState& carried, std::size_t number, Pass& pass) override {
    const auto heads = shape().heads;
    const auto of_heads = [&](const Tensor& y_bcd) { return in_wide(split_heads(y_bcd, heads)); };
    const auto by_head = [&](const Tensor& y_d) { return y_d.view({heads, 1, -1}); };
    const auto sigmoid = [](const Tensor& y) { return torch::sigmoid(y); };
    const auto step_bcd = carried.previous(x_bcd) - x_bcd;
    const auto input = [&](std::int64_t i) { return x_bcd + step_bcd * mixture_id_[i].to(x_bcd.scalar_type()); };
    const auto r_bnck = of_heads(receptance_(input(0)));
    const auto tanh = [](const Tensor& y) { return y.tanh(); };
    const double least_log_decay = -std::exp(-0.5);
    const auto log_decay_bncw = least_log_decay * of_heads(torch::sigmoid(decay_->forward(input(1), tanh)));
    const auto key_bnck = of_heads(key_(input(2)));
    const auto value_bcd = mixed_with_first(value_(input(3)), input(3), number, pass);
    const auto rate_bnck = of_heads(torch::sigmoid(rate_->forward(input(4))));
    const auto gate_bcd = gate_->forward(input(5), sigmoid);
    const auto direction_bnck = with_length(1, key_bnck * by_head(key_direction_d_));
    const auto written_bnck = key_bnck * (1 + (rate_bnck - 1) * by_head(key_share_d_));
    const auto value_bncv = of_heads(value_bcd);
    const auto o_bncv = carried.mix({.q_bnck = r_bnck,
                                     .k_bnck = written_bnck,
                                     .value_bncv = value_bncv,
                                     .log_decay_bncw = log_decay_bncw,
                                     .least_log_decay = least_log_decay,
                                     .a_bnck = -direction_bnck,
                                     .b_bnck = direction_bnck * rate_bnck});
    const auto bonus_bnc1 = (r_bnck * by_head(bonus_d_) * written_bnck).sum(-1, true);
    const auto y_bcd = normalised(o_bncv) + merge_heads(bonus_bnc1 * value_bncv);
    return y_bcd.to(x_bcd.scalar_type()) * gate_bcd;
  }

 private:
  Tensor given(const char* name, const Tensor& value) {
    return add_parameter(name, Features::as_parameter(value), {.init = Init::given()});
  }

  Tensor mixed_with_first(const Tensor& value_bcd, const Tensor& input_bcd, std::size_t number, Pass& pass) {
    auto& first_bcd = pass.first_values.at(number);
    if (first_share_.is_empty() || !first_bcd.defined()) return first_bcd = value_bcd;
    const auto share = torch::sigmoid(first_share_->forward(input_bcd));
    return value_bcd + (first_bcd - value_bcd) * share;
  }

  // Layer norm of every head, [b, c, d].
  Tensor normalised(const Tensor& o_bncv) const {
    constexpr double epsilon = 64e-5;
    const auto by_head = [&](const Tensor& y_d) { return y_d.view({shape().heads, 1, -1}); };
    const auto y_bncv = torch::layer_norm(o_bncv, {o_bncv.size(3)}, {}, {}, epsilon);
    return merge_heads(y_bncv * by_head(norm_weight_d_) + by_head(norm_bias_d_));
  }

  Linear receptance_{nullptr}, key_{nullptr}, value_{nullptr};
  LowRank decay_{nullptr}, rate_{nullptr}, gate_{nullptr};
  LowRank first_share_{nullptr};  // empty in the first block with RWKV-7
  Tensor mixture_id_, key_direction_d_, key_share_d_, bonus_d_, norm_weight_d_, norm_bias_d_;
};

}  // namespace

std::shared_ptr<Mixer> Rwkv7Options::make(const MixerShape& shape) const {
  return std::make_shared<Rwkv7>(*this, shape);
}

}  // namespace metaformer
