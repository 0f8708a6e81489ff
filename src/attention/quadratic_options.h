#pragma once
// The options of quadratic attention, and what it costs. No torch.

#include "attention/score_options.h"

namespace metaformer {

enum class QuadraticForm { projected, full };
template <>
struct EnumNames<QuadraticForm> {
  static constexpr std::array<std::string_view, 2> values = {"projected", "full"};
};

struct QuadraticOptions {
  static constexpr std::string_view kind = "quadratic";
  static constexpr std::string_view summary = "scores from a free bilinear form over one shared projection (or over x)";
  QuadraticForm form = QuadraticForm::projected;
  static constexpr bool has_scores = true;
  MixerValues values = MixerValues::shared;
  double score_std = 1;
  bool qk_norm = false;
  bool learned_temperature = false;
  bool fixed_norm = false;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const {
    if (form == QuadraticForm::full) return {Backend::composed, Backend::reference};
    return {Backend::composed, Backend::reference, Backend::fused};
  }

  // The full form compares inputs, not what each side makes of them.
  bool can_cross() const { return form == QuadraticForm::projected; }

  std::optional<MixerProblem> problem(const MixerShape& shape) const {
    if (form == QuadraticForm::full && values != MixerValues::shared)
      return MixerProblem{
          {"model.mixer.values", "model.mixer.form"},
          "form 'full' scores the inputs, so its projection is one of values already: set it to shared"};
    if (form == QuadraticForm::full && qk_norm)
      return MixerProblem{{"model.mixer.qk_norm", "model.mixer.form"},
                          "form 'full' scores the inputs, which model.norm normalises already: set it to false"};
    if (form == QuadraticForm::full && learned_temperature)
      return MixerProblem{{"model.mixer.learned_temperature", "model.mixer.form"},
                          "form 'full' scores the inputs, which have no qk_norm: set it to false"};
    if (form == QuadraticForm::full && fixed_norm)
      return MixerProblem{{"model.mixer.fixed_norm", "model.mixer.form"}, "is for form 'projected': set it to false"};
    if (auto problem = temperature_problem(learned_temperature, qk_norm)) return problem;
    if (auto problem = values_problem(values, qk_norm)) return problem;
    const bool fused = backend == Backend::fused && form == QuadraticForm::projected;
    return fused ? fused_problem(shape, values) : std::nullopt;
  }

  std::int64_t key_width(const MixerShape& shape) const {
    return form == QuadraticForm::full ? shape.width : shape.head_width();
  }

  // A form of width x width, or of head width x head width, per head.
  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const {
    const auto side = key_width(shape);
    const auto square = static_cast<double>(side) * static_cast<double>(side);
    return AttentionCost{.projections = shared_projections(shape, values),
                         .form_parameters = side * side,
                         .form_operations = 2 * load.tokens * static_cast<double>(shape.heads) * square,
                         .score_width = side,
                         .qk_norms = qk_norm ? 1 : 0,
                         .learned_temperature = learned_temperature}
        .of(shape, load, backend);
  }
};

template <class Visitor>
void visit(Visitor& field, QuadraticOptions& o) {
  field("form", o.form, "projected: p W p^T per head; full: x U x^T with a width x width form per head");
  field("values", o.values, values_help);
  field("score_std", o.score_std, positive, score_std_help);
  field("qk_norm", o.qk_norm, qk_norm_help);
  field("learned_temperature", o.learned_temperature, learned_temperature_help);
  field("fixed_norm", o.fixed_norm, fixed_norm_help);
  field("backend", o.backend, backend_help);
}

class Mixer;
std::shared_ptr<Mixer> make(const QuadraticOptions& options, const MixerShape& shape);

}  // namespace metaformer
