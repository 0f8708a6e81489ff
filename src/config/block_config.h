#pragma once
// The parts of a block beside its mixer: norms, activations, the feed-forward branch.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

enum class NormPosition { pre, post, both };
template <>
struct EnumNames<NormPosition> {
  static constexpr std::array<std::string_view, 3> values = {"pre", "post", "both"};
};

struct LayerNormConfig {
  static constexpr std::string_view kind = "layer_norm";
  static constexpr std::string_view summary = "mean 0 and variance 1 over the features of a token (Ba et al. 2016)";
  static constexpr bool has_bias = true;  // with model.bias
  NormPosition position = NormPosition::pre;
  bool final = true;
  double epsilon = 1e-5;
};

struct RmsNormConfig {
  static constexpr std::string_view kind = "rms_norm";
  static constexpr std::string_view summary =
      "mean square 1 over the features of a token, without bias (Zhang and Sennrich 2019)";
  static constexpr bool has_bias = false;
  NormPosition position = NormPosition::pre;
  bool final = true;
  double epsilon = 1e-5;
};

using NormConfig = std::variant<LayerNormConfig, RmsNormConfig>;

inline NormPosition position_of(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.position; }, norm);
}

inline bool has_bias(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.has_bias; }, norm);
}

inline double epsilon_of(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.epsilon; }, norm);
}

// After the last block: what post-norm has already.
inline bool has_final_norm(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.position != NormPosition::post && options.final; }, norm);
}

template <class Visitor, class Norm>
void visit_norm(Visitor& field, Norm& c) {
  field("position", c.position,
        "pre: x + branch(norm(x)), a final norm; post: norm(x + branch(x)) (2017); both: x + norm(branch(norm(x))), a "
        "final norm");
  field("final", c.final, "pre and both: a norm after the last block");
  field("epsilon", c.epsilon, Range{.low = 0, .high = 1, .low_open = true}, "added to the variance or mean square");
}

template <class Visitor>
void visit(Visitor& field, LayerNormConfig& c) {
  visit_norm(field, c);
}

template <class Visitor>
void visit(Visitor& field, RmsNormConfig& c) {
  visit_norm(field, c);
}

struct GeluConfig {
  static constexpr std::string_view kind = "gelu";
  static constexpr std::string_view summary = "x F(x), F: the normal distribution function (Hendrycks and Gimpel 2016)";
};

struct GeluTanhConfig {
  static constexpr std::string_view kind = "gelu_tanh";
  static constexpr std::string_view summary = "gelu approximated with a hyperbolic tangent, as in GPT-2";
};

struct ReluConfig {
  static constexpr std::string_view kind = "relu";
  static constexpr std::string_view summary = "max(x, 0)";
};

struct SiluConfig {
  static constexpr std::string_view kind = "silu";
  static constexpr std::string_view summary = "x / (1 + exp(-beta x)), also called swish (Ramachandran et al. 2017)";
  double beta = 1;
};

struct ReluSquaredConfig {
  static constexpr std::string_view kind = "relu_squared";
  static constexpr std::string_view summary = "max(x, 0)^2 (So et al. 2021)";
};

using ActivationConfig = std::variant<GeluConfig, GeluTanhConfig, ReluConfig, SiluConfig, ReluSquaredConfig>;

template <class Visitor>
void visit(Visitor&, GeluConfig&) {}

template <class Visitor>
void visit(Visitor&, GeluTanhConfig&) {}

template <class Visitor>
void visit(Visitor&, ReluConfig&) {}

template <class Visitor>
void visit(Visitor& field, SiluConfig& c) {
  field("beta", c.beta, positive, "steepness of the gate");
}

template <class Visitor>
void visit(Visitor&, ReluSquaredConfig&) {}

struct MlpConfig {
  static constexpr std::string_view kind = "mlp";
  static constexpr std::string_view summary = "two linear layers with an activation between them";
  ActivationConfig activation;
  double ratio = 4;
  bool output_activation = false;
  std::int64_t chunks = 1;

  std::int64_t hidden_width(std::int64_t width) const { return std::llround(static_cast<double>(width) * ratio); }
  std::int64_t up_width(std::int64_t width) const { return hidden_width(width); }
};

struct GatedConfig {
  static constexpr std::string_view kind = "gated";
  static constexpr std::string_view summary =
      "down(activation(gate x) * up x): SwiGLU with silu, GEGLU with gelu (Shazeer 2020)";
  ActivationConfig activation = SiluConfig{};
  double ratio = 8.0 / 3;
  std::int64_t chunks = 1;

  // The nearest multiple of 8, at least 8.
  std::int64_t hidden_width(std::int64_t width) const {
    return 8 * std::max<std::int64_t>(1, std::llround(static_cast<double>(width) * ratio / 8));
  }
  // Gate and up side by side.
  std::int64_t up_width(std::int64_t width) const { return 2 * hidden_width(width); }
};

using FeedForwardConfig = std::variant<MlpConfig, GatedConfig>;

inline std::int64_t chunks_of(const FeedForwardConfig& feed_forward) {
  return std::visit([](const auto& options) { return options.chunks; }, feed_forward);
}

template <class Visitor>
void visit_chunks(Visitor& field, std::int64_t& chunks) {
  field("chunks", chunks, between(1, 1 << 16),
        "parts of the tokens that are computed one after the other, and again in backward, to save memory");
}

template <class Visitor>
void visit(Visitor& field, MlpConfig& c) {
  field("activation", c.activation, "of the hidden layer");
  field("ratio", c.ratio, Range{.low = 0, .high = 64, .low_open = true}, "hidden width over model width");
  field("output_activation", c.output_activation, "the activation follows the second layer, too");
  visit_chunks(field, c.chunks);
}

template <class Visitor>
void visit(Visitor& field, GatedConfig& c) {
  field("activation", c.activation, "of the gate");
  field("ratio", c.ratio, Range{.low = 0, .high = 64, .low_open = true},
        "hidden width over model width; rounded to a multiple of 8");
  visit_chunks(field, c.chunks);
}

}  // namespace metaformer
