#pragma once
// Mixers with a matrix state, by the formulas of their papers in float64. The state of each token is computed from all
// its visible tokens, so `visible` covers segments, padding and both directions.

#include <cmath>

#include "attention/mixer_support.h"

namespace metaformer {

// One direction: token t reads the tokens up to t that `seen_btt` allows.
struct StateFormula {
  using Tensor = torch::Tensor;

  const Mixer& mixer;
  std::int64_t heads;
  Tensor x_bcd, seen_btt;

  Tensor parameter(const std::string& name) const { return mixer.named_parameters()[name].to(torch::kDouble); }
  Tensor product(const std::string& name, const Tensor& from) const {
    const auto parameters = mixer.named_parameters();
    const auto* bias = parameters.find(name + ".bias");
    const auto y = torch::einsum("oi,bci->bco", {parameter(name + ".weight"), from});
    return bias == nullptr ? y : y + *bias;
  }
  Tensor of_heads(const Tensor& y_bcd) const { return y_bcd.unflatten(2, {heads, -1}); }  // [b, c, n, k]

  // sum_j filter[size - 1 - j] y_(t - j) over the visible tokens t - j.
  Tensor convolved(const std::string& name, const Tensor& y_bcd) const {
    const auto parameters = mixer.named_parameters();
    const auto* filter_dj = parameters.find(name.empty() ? "filter" : name + ".filter");
    if (filter_dj == nullptr) return y_bcd;
    const auto size = filter_dj->size(1);
    auto sum = torch::zeros_like(y_bcd);
    for (std::int64_t t = 0; t < y_bcd.size(1); ++t)
      for (std::int64_t j = 0; j < std::min(size, t + 1); ++j)
        sum.select(1, t) += y_bcd.select(1, t - j) * filter_dj->select(1, size - 1 - j) *
                            (j == 0 ? torch::ones_like(seen_btt.select(1, 0).select(1, 0).unsqueeze(1))
                                    : seen_btt.select(1, t).select(1, t - j).unsqueeze(1));
    return sum;
  }
  Tensor input(const std::string& name) const { return convolved(name, product(name + ".projection", x_bcd)); }

  // o_t = S q_t. S starts at 0 and becomes S A_s + v_s k_s^T for each token s that t sees, in order;
  // A_s = diag(w_s) + a_s b_s^T. An undefined w is 1; without a there is no product.
  Tensor read(const Tensor& q, const Tensor& k, const Tensor& v, Tensor w = {}, const Tensor& a = {},
              const Tensor& b = {}) const {
    const auto tokens = q.size(1);
    if (!w.defined()) w = torch::ones_like(k);
    auto o = torch::zeros_like(v);
    for (std::int64_t t = 0; t < tokens; ++t) {
      auto state = torch::zeros({v.size(0), heads, v.size(3), k.size(3)}, torch::kDouble);
      for (std::int64_t s = 0; s <= t; ++s) {
        const auto at = [&](const Tensor& y) { return y.select(1, s); };
        auto next = state * at(w).unsqueeze(2) + torch::einsum("bnv,bnk->bnvk", {at(v), at(k)});
        if (a.defined()) next = next + torch::einsum("bnvj,bnj,bnk->bnvk", {state, at(a), at(b)});
        const auto is_seen = seen_btt.select(1, t).select(1, s) > 0;
        state = torch::where(is_seen.view({-1, 1, 1, 1}), next, state);
      }
      o.select(1, t).copy_(torch::einsum("bnvk,bnk->bnv", {state, q.select(1, t)}));
    }
    return o;
  }

  Tensor head_norm(const Tensor& o) const {
    return o / (o.square().mean(-1, true) + 1e-6).sqrt() * parameter("norm.weight");
  }
  static Tensor silu(const Tensor& y) { return y * torch::sigmoid(y); }
  static Tensor softplus(const Tensor& y) { return torch::log1p(y.exp()); }
  static Tensor unit(const Tensor& y) { return y / (y.square().sum(-1, true) + 1e-6).sqrt(); }
  Tensor gated(const Tensor& o) const { return head_norm(o).flatten(2) * silu(product("gate", x_bcd)); }

  Tensor operator()(const LinearAttentionOptions& options) const {
    const auto features = [&](const Tensor& y) {
      if (options.features == LinearFeatures::elu) return torch::where(y > 0, y + 1, y.exp());
      // All k^2 products of features, as in the paper.
      const auto k = static_cast<double>(y.size(3));
      const auto products = torch::einsum("bcni,bcnj->bcnij", {y, y}).flatten(3) / std::sqrt(2 * k);
      return torch::cat({torch::ones_like(y.narrow(3, 0, 1)), y / std::pow(k, 0.25), products}, 3);
    };
    const auto q = features(of_heads(input("query"))), k = features(of_heads(input("key")));
    const auto v = of_heads(input("value"));
    const auto sum = read(q, k, torch::ones_like(v.narrow(3, 0, 1)));
    return (read(q, k, v) / torch::where(sum > 0, sum, torch::ones_like(sum))).flatten(2);
  }

  Tensor operator()(const RetentionOptions&) const {
    const auto rotated = [&](const Tensor& y) {
      const auto half = y.size(3) / 2;
      auto turned = y.clone();
      for (std::int64_t t = 0; t < y.size(1); ++t)
        for (std::int64_t l = 0; l < half; ++l) {
          const double angle =
              static_cast<double>(t) / std::pow(1e4, static_cast<double>(l) / static_cast<double>(half));
          const auto first = y.select(1, t).select(2, l), second = y.select(1, t).select(2, half + l);
          turned.select(1, t).select(2, l).copy_(first * std::cos(angle) - second * std::sin(angle));
          turned.select(1, t).select(2, half + l).copy_(second * std::cos(angle) + first * std::sin(angle));
        }
      return turned;
    };
    const auto q = rotated(of_heads(input("query"))), k = rotated(of_heads(input("key")));
    auto decay = torch::ones_like(k);
    for (std::int64_t n = 0; n < heads; ++n) decay.select(2, n).fill_(1 - std::pow(2.0, -5.0 - static_cast<double>(n)));
    const auto root = std::sqrt(static_cast<double>(q.size(3)));
    return gated(read(q / root, k, of_heads(input("value")), decay));
  }

  Tensor operator()(const GatedLinearAttentionOptions&) const {
    const auto q = of_heads(input("query")), k = of_heads(input("key"));
    const auto decay = torch::sigmoid(product("decay_out", product("decay_in", x_bcd))).pow(1.0 / 16);
    const auto root = std::sqrt(static_cast<double>(q.size(3)));
    return gated(read(q / root, k, of_heads(input("value")), of_heads(decay)));
  }

  Tensor operator()(const Mamba2Options&) const {
    const auto activated = [&](const std::string& name) {
      const auto parameters = mixer.named_parameters();
      const auto* bias = parameters.find(name + "_bias");
      return silu(bias == nullptr ? input(name) : input(name) + *bias);
    };
    const auto value = of_heads(activated("value"));
    const auto key_query = activated("key_query").chunk(2, 2);
    const auto of_all = [&](const Tensor& y) { return y.unsqueeze(2).expand({-1, -1, heads, -1}); };
    const auto step = softplus(product("step", x_bcd) + parameter("step_bias")).unsqueeze(3);
    const auto decay = torch::exp(-step * parameter("log_rate").exp().unsqueeze(1));
    const auto k = of_all(key_query[0]);
    const auto o = read(of_all(key_query[1]), k, step * value, decay.expand_as(k));
    const auto y = (o + parameter("skip").unsqueeze(1) * value).flatten(2) * silu(product("gate", x_bcd));
    return y / (y.square().mean(-1, true) + 1e-5).sqrt() * parameter("norm");
  }

  Tensor delta(bool is_gated) const {
    const auto activated = [&](const char* name) { return of_heads(silu(input(name))); };
    const auto q = unit(activated("query")), k = unit(activated("key")), v = activated("value");
    const auto rate = torch::sigmoid(product("rate", x_bcd)).unsqueeze(3);
    auto decay = torch::ones_like(rate);
    if (is_gated)
      decay = torch::exp(-parameter("log_rate").exp() * softplus(product("decay", x_bcd) + parameter("decay_bias")))
                  .unsqueeze(3);
    const auto root = std::sqrt(static_cast<double>(q.size(3)));
    const auto o = read(q / root, k, rate * v, decay.expand_as(k), -decay * rate * k, k);
    return is_gated ? gated(o) : head_norm(o).flatten(2);
  }
  Tensor operator()(const DeltaNetOptions&) const { return delta(false); }
  Tensor operator()(const GatedDeltaNetOptions&) const { return delta(true); }

  Tensor operator()(const ShortConvolutionOptions&) const {
    const auto parts = product("input", x_bcd).chunk(3, 2);
    return parts[1] * convolved("", parts[0] * parts[2]);
  }

  Tensor operator()(const Rwkv7Options&) const {
    auto before = torch::zeros_like(x_bcd);
    for (std::int64_t t = 1; t < x_bcd.size(1); ++t)
      before.select(1, t).copy_(x_bcd.select(1, t - 1) * seen_btt.select(1, t).select(1, t - 1).unsqueeze(1));
    const auto mixture = parameter("mixture");
    const auto mixed = [&](std::int64_t i) { return x_bcd + (before - x_bcd) * mixture[i]; };
    const auto low_rank = [&](const std::string& name, std::int64_t i, const auto& f) {
      return torch::matmul(f(torch::matmul(mixed(i), parameter(name + ".in").t())), parameter(name + ".out").t());
    };
    const auto same = [](const Tensor& y) { return y; };
    const auto by_heads = [&](const std::string& name) { return parameter(name).view({heads, -1}); };
    const auto r = of_heads(product("receptance", mixed(0))), key = of_heads(product("key", mixed(2)));
    const auto v = of_heads(product("value", mixed(3)));
    const auto decay_input = low_rank("decay", 1, [](const Tensor& y) { return y.tanh(); }) + parameter("decay.base");
    const auto w = of_heads(torch::exp(-std::exp(-0.5) * torch::sigmoid(decay_input)));
    const auto a = of_heads(torch::sigmoid(low_rank("rate", 4, same) + parameter("rate.base")));
    const auto g = low_rank("gate", 5, [](const Tensor& y) { return torch::sigmoid(y); });
    const auto u = unit(key * by_heads("key_direction"));
    const auto k = key * (1 + (a - 1) * by_heads("key_share"));
    const auto o = read(r, k, v, w, -u, u * a);
    const auto normal = (o - o.mean(-1, true)) / (o.var(-1, /*unbiased=*/false, true) + 64e-5).sqrt();
    const auto bonus = (r * by_heads("bonus") * k).sum(-1, true) * v;
    return (normal * by_heads("norm_weight") + by_heads("norm_bias") + bonus).flatten(2) * g;
  }
};

// The whole mixer.
template <class Options>
torch::Tensor state_mixer_by_formula(const Options& options, const Mixer& mixer, std::int64_t heads,
                                     const torch::Tensor& x_bcd, const torch::Tensor& visible_btt, bool causal) {
  const torch::NoGradGuard no_grad;
  const auto visible = visible_btt.to(torch::kDouble);
  auto y = StateFormula{mixer, heads, x_bcd, visible.tril()}(options);
  if (!causal && options.direction == StateDirection::both)
    y = y + StateFormula{mixer, heads, x_bcd.flip(1), visible.flip({1, 2}).tril()}(options).flip(1);
  const auto weight = mixer.named_parameters()["output.weight"];
  return torch::matmul(y, weight.t()) * visible_btt.any(2).unsqueeze(2);
}

}  // namespace metaformer
