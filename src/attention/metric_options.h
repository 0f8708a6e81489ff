#pragma once
// The options of metric attention, what is at odds among them, and what it costs. No torch.

#include "attention/score_options.h"

namespace metaformer {

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

struct MetricOptions {
  static constexpr std::string_view kind = "metric";
  static constexpr std::string_view summary = "scores from a learned metric tensor over one shared projection";
  MetricConstraint constraint = MetricConstraint::symmetric;
  MetricScore score = MetricScore::bilinear;
  static constexpr bool has_scores = true;
  MixerValues values = MixerValues::shared;
  double score_std = 1;
  bool qk_norm = false;
  bool learned_temperature = false;
  bool fixed_norm = false;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const {
    if (score == MetricScore::as_published) return {Backend::reference};
    return {Backend::composed, Backend::reference, Backend::fused};
  }

  // The published formula mirrors a form at the diagonal of tokens that attend to themselves.
  bool can_cross() const { return score != MetricScore::as_published; }

  std::optional<MixerProblem> problem(const MixerShape& shape) const {
    const std::string score_key = "model.mixer.score", constraint_key = "model.mixer.constraint";
    const bool symmetric = constraint == MetricConstraint::symmetric, published = score == MetricScore::as_published;
    if (score == MetricScore::distance && symmetric)
      return MixerProblem{
          {score_key, constraint_key},
          "'distance' needs a metric that is never negative: set constraint to psd, diagonal or identity"};
    if (published && !symmetric)
      return MixerProblem{{score_key, constraint_key},
                          "'as_published' is the formula for a packed metric: set constraint to symmetric"};
    if (published && (backend == Backend::composed || backend == Backend::fused))
      return MixerProblem{{"model.mixer.backend", score_key},
                          "score 'as_published' has only the reference backend: set backend to auto or reference"};
    if (published && act_on_scores(shape.positions))
      return MixerProblem{{"model.positions", "model.positions.kind", score_key},
                          fmt::format("score 'as_published' has no {} positions: set it to none, learned or sinusoidal",
                                      kind_of(shape.positions))};
    if (auto problem = values_problem(values, qk_norm)) return problem;
    if (fixed_norm && constraint == MetricConstraint::identity)
      return MixerProblem{{"model.mixer.fixed_norm", constraint_key},
                          "constraint 'identity' has nothing to learn: set it to false"};
    if (auto problem = temperature_problem(learned_temperature, qk_norm)) return problem;
    return backend == Backend::fused ? fused_problem(shape, values) : std::nullopt;
  }

  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const {
    const auto k = shape.head_width();
    const auto width = static_cast<double>(shape.width);
    AttentionCost cost{.projections = shared_projections(shape, values),
                       .score_width = k,
                       .qk_norms = qk_norm ? 1 : 0,
                       .learned_temperature = learned_temperature};
    switch (constraint) {
      case MetricConstraint::symmetric:
      case MetricConstraint::psd:
        cost.form_parameters = k * (k + 1) / 2;
        cost.form_operations = 2 * load.tokens * width * static_cast<double>(k);
        break;
      case MetricConstraint::diagonal:
        cost.form_parameters = k;
        cost.form_operations = load.tokens * width;
        break;
      case MetricConstraint::identity:
        break;
    }
    return cost.of(shape, load, backend);
  }
};

template <class Visitor>
void visit(Visitor& field, MetricOptions& o) {
  field("constraint", o.constraint,
        "M symmetric; psd (M = L L^T); diagonal; or identity (scores p p^T, no metric parameters)");
  field("score", o.score,
        "bilinear: p M p'; distance: -(p-p') M (p-p'); as_published: the uncorrected formula, for comparison only");
  field("values", o.values, values_help);
  field("score_std", o.score_std, positive, score_std_help);
  field("qk_norm", o.qk_norm, qk_norm_help);
  field("learned_temperature", o.learned_temperature, learned_temperature_help);
  field("fixed_norm", o.fixed_norm, fixed_norm_help);
  field("backend", o.backend, backend_help);
}

class Mixer;
std::shared_ptr<Mixer> make(const MetricOptions& options, const MixerShape& shape);

}  // namespace metaformer
