#pragma once
// What a config can say about the token mixer: one struct per mixer. attention/ makes the mixer from it; a new mixer is
// one struct here (added to MixerOptions) and one file there.

#include <cstdint>
#include <optional>
#include <variant>

#include "config/schema.h"

namespace metaformer {

// reference: the formula as written, with the whole score matrix. composed: batched products around the library's
// attention. fused: the CUDA kernels of cuda/. automatic: the fastest that supports the options, as far as that was
// measured: fused kernels were not yet, so it takes composed.
enum class Backend { automatic, reference, composed, fused };
template <>
struct EnumNames<Backend> {
  static constexpr std::array<std::string_view, 4> values = {"auto", "reference", "composed", "fused"};
};

enum class QuadraticForm { projected, full };
template <>
struct EnumNames<QuadraticForm> {
  static constexpr std::array<std::string_view, 2> values = {"projected", "full"};
};

// How the metric M of a head is parameterised.
enum class MetricConstraint { symmetric, psd, diagonal, identity };
template <>
struct EnumNames<MetricConstraint> {
  static constexpr std::array<std::string_view, 4> values = {"symmetric", "psd", "diagonal", "identity"};
};

enum class MetricScore { bilinear, distance, as_published };
template <>
struct EnumNames<MetricScore> {
  static constexpr std::array<std::string_view, 3> values = {"bilinear", "distance", "as_published"};
};

// Width of a pooling window in tokens, or everything visible.
struct PoolingWindow {
  std::int64_t tokens = 3;  // 0 stands for `all`
  bool all() const { return tokens == 0; }
  bool operator==(const PoolingWindow&) const = default;
};

constexpr const char* backend_help =
    "reference: the formula as written; composed: batched products around the library's attention; fused: CUDA kernels "
    "of metric and projected quadratic attention; auto chooses";

constexpr const char* score_std_help =
    "standard deviation of the initial scores between different tokens; the smaller, the nearer each head starts to a "
    "plain mean";

struct ScaledDotProductOptions {
  static constexpr std::string_view kind = "scaled_dot_product";
  static constexpr std::string_view summary = "softmax(q k^T / sqrt(k)) v, three projections (2017)";
  std::optional<double> score_std = 1;
  Backend backend = Backend::automatic;
};

struct QuadraticOptions {
  static constexpr std::string_view kind = "quadratic";
  static constexpr std::string_view summary = "scores from a free bilinear form over one shared projection (or over x)";
  QuadraticForm form = QuadraticForm::projected;
  double score_std = 1;
  Backend backend = Backend::automatic;
};

struct MetricOptions {
  static constexpr std::string_view kind = "metric";
  static constexpr std::string_view summary = "scores from a learned metric tensor over one shared projection";
  MetricConstraint constraint = MetricConstraint::symmetric;
  MetricScore score = MetricScore::bilinear;
  double score_std = 1;
  Backend backend = Backend::automatic;
};

struct AveragePoolingOptions {
  static constexpr std::string_view kind = "average_pooling";
  static constexpr std::string_view summary = "mean over a window of visible tokens, minus the token (PoolFormer)";
  PoolingWindow window;
  Backend backend = Backend::automatic;
};

struct IdentityOptions {
  static constexpr std::string_view kind = "identity";
  static constexpr std::string_view summary = "the branch returns its input: no mixing";
  Backend backend = Backend::automatic;
};

struct NoneOptions {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "no mixer branch at all";
  Backend backend = Backend::automatic;
};

using MixerOptions = std::variant<ScaledDotProductOptions, QuadraticOptions, MetricOptions, AveragePoolingOptions,
                                  IdentityOptions, NoneOptions>;

inline Backend backend_of(const MixerOptions& mixer) {
  return std::visit([](const auto& options) { return options.backend; }, mixer);
}

inline MixerOptions with_backend(MixerOptions mixer, Backend backend) {
  std::visit([&](auto& options) { options.backend = backend; }, mixer);
  return mixer;
}

// Whether the kernels of cuda/ compute it.
inline bool has_fused_backend(const MixerOptions& mixer) {
  if (const auto* metric = std::get_if<MetricOptions>(&mixer)) return metric->score != MetricScore::as_published;
  const auto* quadratic = std::get_if<QuadraticOptions>(&mixer);
  return quadratic != nullptr && quadratic->form == QuadraticForm::projected;
}

template <class Visitor>
void visit(Visitor& field, ScaledDotProductOptions& o) {
  field("score_std", o.score_std, positive,
        "standard deviation of the initial scores between different tokens; null: queries and keys are drawn from "
        "N(0, 0.02), as in GPT-2");
  field("backend", o.backend, backend_help);
}

template <class Visitor>
void visit(Visitor& field, QuadraticOptions& o) {
  field("form", o.form, "projected: p W p^T per head; full: x U x^T with a width x width form per head");
  field("score_std", o.score_std, positive, score_std_help);
  field("backend", o.backend, backend_help);
}

template <class Visitor>
void visit(Visitor& field, MetricOptions& o) {
  field("constraint", o.constraint,
        "M symmetric; psd (M = L L^T); diagonal; or identity (scores p p^T, no metric parameters)");
  field("score", o.score,
        "bilinear: p M p'; distance: -(p-p') M (p-p'); as_published: the uncorrected formula, for comparison only");
  field("score_std", o.score_std, positive, score_std_help);
  field("backend", o.backend, backend_help);
}

template <class Visitor>
void visit(Visitor& field, AveragePoolingOptions& o) {
  field("window", o.window, "tokens in the window, counting the token itself; or all");
  field("backend", o.backend, backend_help);
}

template <class Visitor>
void visit(Visitor& field, IdentityOptions& o) {
  field("backend", o.backend, backend_help);
}

template <class Visitor>
void visit(Visitor& field, NoneOptions& o) {
  field("backend", o.backend, backend_help);
}

}  // namespace metaformer
