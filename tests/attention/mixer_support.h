#pragma once
// Mixers with random weights, and comparisons that several tests use.

#include <fmt/format.h>

#include <cmath>

#include "attention/mixer.h"
#include "attention/score_positions.h"
#include "config/writer.h"
#include "support/any_mixer.h"
#include "support/torch_catch.h"

namespace metaformer {

inline std::string describe(const MixerConfig& options) {
  ExperimentConfig config;
  transformer(config).mixer = options;
  return config_to_json(config)["model"]["mixer"].dump();
}

// Draws every parameter at random, so that no initial identity hides an error.
inline std::shared_ptr<Mixer> random_mixer(const MixerConfig& options, const MixerShape& shape,
                                           torch::ScalarType type = torch::kDouble) {
  torch::manual_seed(7);
  auto mixer = make_mixer(options, with_pairs(shape, options));
  mixer->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.normal_(0, 0.4);
  mixer->to(type);
  return mixer;
}

// The biases u and v of transformer_xl if all layers share them, [2, n, k]; otherwise undefined.
inline torch::Tensor shared_distance_biases(const MixerConfig& options, const MixerShape& shape) {
  const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
  if (xl == nullptr || !xl->shared_biases) return {};
  const auto own = with_pairs(shape, options);
  return torch::randn({2, own.heads, key_width(options, own)}, torch::kDouble);
}

// Sets the distances and biases that a model gives to mixers with transformer_xl positions, in double; does nothing
// for other positions.
inline void set_distances(Visibility& visibility, const MixerShape& shape, const torch::Tensor& biases_2nk,
                          std::int64_t tokens) {
  const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
  if (xl == nullptr) return;
  DistanceTable table(shape.width, xl->clamp_length);
  visibility.distance_ld = table.rows_ld(tokens, tokens, visibility.causal, torch::zeros(1, torch::kDouble));
  if (!biases_2nk.defined()) return;
  visibility.content_bias_nk = biases_2nk[0];
  visibility.distance_bias_nk = biases_2nk[1];
}

inline torch::Tensor mix(Mixer& mixer, const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                         const Visibility& visibility, MixerState* state = nullptr) {
  Pass pass;
  return mixer.forward(x_bcd, context_bed, visibility, state, pass);
}

inline torch::Tensor mix(Mixer& mixer, const torch::Tensor& x_bcd, const Visibility& visibility,
                         MixerState* state = nullptr) {
  return mix(mixer, x_bcd, x_bcd, visibility, state);
}

// Compares the gradients of the loss with finite differences of fourth order: for every entry of a small input, along
// random directions for a large one.
template <class Loss>
void check_gradients(const std::vector<torch::Tensor>& inputs, const Loss& loss, double tolerance) {
  constexpr std::int64_t most = 24;
  constexpr double step = 2e-5;
  const auto gradients = torch::autograd::grad({loss()}, inputs);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto input = inputs[i];
    const auto value = input.clone();
    const auto count = value.numel();
    const auto directions_jn = count <= most ? torch::eye(count, torch::kDouble)
                                             : torch::randn({most, count}, torch::kDouble) / std::sqrt(count);
    auto numeric_j = torch::empty({directions_jn.size(0)}, torch::kDouble);
    for (std::int64_t j = 0; j < directions_jn.size(0); ++j) {
      const auto loss_at = [&](double steps) {
        input.copy_(value + steps * step * directions_jn[j].view(value.sizes()));
        return loss().template item<double>();
      };
      numeric_j[j] = (8 * (loss_at(1) - loss_at(-1)) - (loss_at(2) - loss_at(-2))) / (12 * step);
    }
    input.copy_(value);
    CHECK(relative_error(torch::mv(directions_jn, gradients[i].reshape(-1)), numeric_j) < tolerance);
  }
}

// The attention weights of scaled scores, over the visible tokens within the window.
inline torch::Tensor weights_by_formula(const ScaledDotProductOptions& options, const Mixer& mixer,
                                        const torch::Tensor& score_bnce, const torch::Tensor& visible_bce) {
  const torch::NoGradGuard no_grad;
  auto seen_bce = visible_bce.clone();
  for (std::int64_t c = 0; c < seen_bce.size(1); ++c)
    for (std::int64_t e = 0; e < seen_bce.size(2); ++e)
      if (options.window > 0 && std::abs(c - e) >= options.window) seen_bce.select(1, c).select(1, e).fill_(false);
  if (options.weights == AttentionWeights::sigmoid) {
    const auto count = seen_bce.sum(2, true).to(torch::kDouble).unsqueeze(1);  // sigmoid(s - log n) = 1 / (1 + n e^-s)
    return seen_bce.unsqueeze(1) / (1 + count * (-score_bnce).exp());
  }
  const auto part_bnce = score_bnce.exp() * seen_bce.unsqueeze(1);
  auto total = part_bnce.sum(3, true);
  if (options.sinks) total = total + mixer.named_parameters()["sinks"].exp().view({1, -1, 1, 1});
  return part_bnce / torch::where(total > 0, total, torch::ones_like(total));
}

// F sqrt(k) / |F| of each head.
inline torch::Tensor with_fixed_norm(const torch::Tensor& form_nkk) {
  const auto k = static_cast<double>(form_nkk.size(1));
  return form_nkk * (k / form_nkk.square().sum({1, 2}, true)).sqrt();
}

// The dense matrices [n, k, k] of lower triangles that are stored row by row, filled entry by entry.
inline torch::Tensor dense(const torch::Tensor& packed_nl, std::int64_t k, bool lower_only) {
  auto m = torch::zeros({packed_nl.size(0), k, k}, packed_nl.options());
  for (std::int64_t i = 0, l = 0; i < k; ++i)
    for (std::int64_t j = 0; j <= i; ++j, ++l) {
      m.select(1, i).select(1, j).copy_(packed_nl.select(1, l));
      if (!lower_only) m.select(1, j).select(1, i).copy_(packed_nl.select(1, l));
    }
  return m;
}

// The metric M of every head by its options, without the temperature, in double: [n, k, k].
inline torch::Tensor metric_by_formula(const MetricOptions& options, const Mixer& mixer, const MixerShape& shape) {
  const torch::NoGradGuard no_grad;
  const auto parameters = mixer.named_parameters();
  const auto k = shape.head_width();
  const auto of = [&](const char* name) { return parameters[name].to(torch::kDouble); };
  auto m = torch::eye(k, torch::kDouble).repeat({shape.heads, 1, 1});
  if (options.constraint == MetricConstraint::symmetric) m = dense(of("packed_metric"), k, false);
  if (options.constraint == MetricConstraint::psd) {
    const auto l = dense(of("packed_factor"), k, true);
    m = torch::einsum("nij,nkj->nik", {l, l});
  }
  if (options.constraint == MetricConstraint::diagonal) {
    const auto diagonal = of("diagonal_metric");
    m = torch::diag_embed(options.score == MetricScore::distance ? torch::log1p(torch::exp(diagonal)) : diagonal);
  }
  return options.fixed_norm ? with_fixed_norm(m) : m;
}

// The form W or U of quadratic attention, without the temperature, in double.
inline torch::Tensor form_by_formula(const QuadraticOptions& options, const Mixer& mixer) {
  const torch::NoGradGuard no_grad;
  const bool is_full = options.form == QuadraticForm::full;
  const auto form = mixer.named_parameters()[is_full ? "full_form" : "form"].to(torch::kDouble);
  return options.fixed_norm ? with_fixed_norm(form) : form;
}

// Segment ids of a batch of 2 sequences of 9: packed documents with padding, and one short sequence.
inline torch::Tensor example_segments() {
  return torch::tensor({0, 0, 0, 0, 1, 1, 1, -1, -1, 5, 5, 5, 5, 5, 5, -1, -1, -1}, torch::kLong).view({2, 9});
}

}  // namespace metaformer
