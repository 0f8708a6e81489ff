#pragma once
// Mixers that depend on the places of tokens, by the formulas of their papers in float64, one pair of tokens at a time.

#include <cmath>
#include <complex>

#include "attention/mixer_support.h"

namespace metaformer {

struct PlaceFormula {
  using Tensor = torch::Tensor;

  const Mixer& mixer;
  MixerShape shape;
  Tensor x_bcd, visible_bce;
  bool causal;

  Tensor parameter(const std::string& name) const { return mixer.named_parameters()[name].to(torch::kDouble); }
  Tensor product(const std::string& name, const Tensor& from) const {
    return torch::matmul(from, parameter(name + ".weight").t());
  }
  std::int64_t tokens() const { return x_bcd.size(1); }
  bool sees(std::int64_t b, std::int64_t c, std::int64_t e) const { return visible_bce[b][c][e].item<bool>(); }
  // The place of a token in its text, whose tokens are contiguous.
  std::int64_t place(std::int64_t b, std::int64_t c) const {
    return visible_bce[b][c].narrow(0, 0, c).sum().item<std::int64_t>();
  }

  // y_c = sum_e weight(b, c, e) value_e over the visible e. A weight is a number, or has one number per feature.
  template <class Weight>
  Tensor mixed(const Tensor& value_bed, const Weight& weight) const {
    auto y = torch::zeros_like(value_bed);
    for (std::int64_t b = 0; b < x_bcd.size(0); ++b)
      for (std::int64_t c = 0; c < tokens(); ++c)
        for (std::int64_t e = 0; e < tokens(); ++e)
          if (sees(b, c, e)) y[b][c] += weight(b, c, e) * value_bed[b][e];
    return y;
  }
  Tensor shown(const Tensor& y_bcd) const { return y_bcd * visible_bce.any(2).unsqueeze(2); }

  Tensor mean(AveragedValues values) const {
    const bool own = values == AveragedValues::own;
    const auto table = parameter("table");
    const auto per_head = shape.width / table.size(0);
    const auto weight = [&](std::int64_t b, std::int64_t c, std::int64_t e) {
      return table.select(1, place(b, c)).select(1, place(b, e)).exp().repeat_interleave(per_head);
    };
    const auto value = own ? product("value", x_bcd) : x_bcd;
    const auto total = mixed(torch::ones_like(value), weight);
    const auto y = mixed(value, weight) / torch::where(total > 0, total, torch::ones_like(total));
    return own ? product("output", y) : y;
  }
  Tensor operator()(const RandomOptions& options) const { return mean(options.averaged); }
  Tensor operator()(const StaticOptions& options) const { return mean(options.averaged); }

  Tensor operator()(const SpatialGatingOptions&) const {
    const auto z = product("input", x_bcd);
    const auto halves = (z / 2 * (1 + torch::erf(z / std::sqrt(2.0)))).chunk(2, 2);
    const auto v = halves[1], deviation = v - v.mean(2, true);
    const auto normal = deviation / (deviation.square().mean(2, true) + 1e-5).sqrt() * parameter("norm_weight") +
                        parameter("norm_bias");
    const auto table = parameter("table")[0], offset = parameter("offset");
    auto sum = mixed(normal, [&](auto b, auto c, auto e) { return table[place(b, c)][place(b, e)]; });
    for (std::int64_t b = 0; b < x_bcd.size(0); ++b)
      for (std::int64_t c = 0; c < tokens(); ++c) sum[b][c] += offset[place(b, c)];
    return shown(product("output", halves[0] * sum));
  }

  // The real part of sum_e sum_j exp(-2 pi i (c e / n + d j / width)) x_ej / sqrt(n width).
  Tensor operator()(const FourierOptions&) const {
    const auto d = x_bcd.size(2);
    auto y = torch::zeros_like(x_bcd);
    for (std::int64_t b = 0; b < x_bcd.size(0); ++b)
      for (std::int64_t c = 0; c < tokens(); ++c) {
        const auto length = static_cast<double>(visible_bce[b][c].sum().item<std::int64_t>());
        for (std::int64_t e = 0; e < tokens(); ++e) {
          if (!sees(b, c, e)) continue;
          const auto index = torch::arange(d, torch::kDouble);
          const auto turns = static_cast<double>(place(b, c) * place(b, e)) / length +
                             torch::outer(index, index) / static_cast<double>(d);
          y[b][c] += torch::mv((2 * M_PI * turns).cos(), x_bcd[b][e]) / std::sqrt(length * static_cast<double>(d));
        }
      }
    return y;
  }

  // The filter of each distance is computed by itself. `before`: e does not follow c in the direction of reading.
  Tensor hyena(const HyenaOptions& options, bool backwards) const {
    const auto width = shape.width;
    const auto before = [&](std::int64_t c, std::int64_t e) { return backwards ? e >= c : e <= c; };
    const auto convolved = [&](const Tensor& value, const auto& factor) {
      return mixed(value, [&](std::int64_t, std::int64_t c, std::int64_t e) {
        return before(c, e) ? factor(std::abs(c - e)) : torch::zeros({value.size(2)}, torch::kDouble);
      });
    };
    auto all = product("input.projection", x_bcd);
    if (options.convolution > 0) {
      const auto filter = parameter("input.filter");
      const auto near = convolved(all, [&](std::int64_t distance) {
        return distance < options.convolution ? filter.select(1, options.convolution - 1 - distance)
                                              : torch::zeros({all.size(2)}, torch::kDouble);
      });
      all = near;
    }
    const auto parts = all.split(width, 2);
    const auto filter_of = [&](std::int64_t distance) {
      const auto context = static_cast<double>(shape.context), t = static_cast<double>(distance) / (context - 1);
      std::vector<double> features = {t};
      for (const bool cosine : {true, false})
        for (int band = 0; band < 16; ++band) {
          const double frequency = 1e-4 + (15 - 1e-4) * band / 15;
          const double angle = frequency * 2 * M_PI * static_cast<double>(distance) / context;
          features.push_back(cosine ? std::cos(angle) : -std::sin(angle));
        }
      auto h = torch::tensor(features, torch::kDouble);
      const std::array names = {"filter_in", "filter_hidden_0", "filter_hidden_1"};
      for (std::size_t i = 0; i < names.size(); ++i)
        h = torch::sin(parameter("frequency") *
                       (torch::mv(parameter(names[i]), h) + parameter("filter_offset_" + std::to_string(i))));
      const auto filters = width * (options.order - 1);
      const auto rate = torch::linspace(std::log(100.0) / 1.5, std::log(100.0) / 0.3, filters, torch::kDouble);
      return torch::mv(parameter("filter_out"), h) * torch::exp(-t * rate);
    };
    std::vector<Tensor> filters;
    for (std::int64_t distance = 0; distance < tokens(); ++distance) filters.push_back(filter_of(distance));
    auto v = parts.back();
    for (auto i = options.order - 1; i > 0; --i) {
      const auto z = v * parts[static_cast<std::size_t>(i)];
      const auto mine = [&](const Tensor& y) { return y.narrow(0, (i - 1) * width, width); };
      v = convolved(z, [&](std::int64_t distance) { return mine(filters[static_cast<std::size_t>(distance)]); }) +
          z * mine(parameter("direct"));
    }
    return v * parts.front();
  }
  Tensor operator()(const HyenaOptions& options) const {
    auto y = hyena(options, /*backwards=*/false);
    if (!causal && options.direction == StateDirection::both) y = y + hyena(options, /*backwards=*/true);
    return shown(product("output", y));
  }
};

template <class Options>
torch::Tensor place_mixer_by_formula(const Options& options, const Mixer& mixer, const MixerShape& shape,
                                     const torch::Tensor& x_bcd, const torch::Tensor& visible_bce, bool causal) {
  const torch::NoGradGuard no_grad;
  return PlaceFormula{mixer, shape, x_bcd, visible_bce, causal}(options);
}

}  // namespace metaformer
