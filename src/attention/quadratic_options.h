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
  double score_std = 1;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const {
    if (form == QuadraticForm::full) return {Backend::composed, Backend::reference};
    return {Backend::composed, Backend::reference, Backend::fused};
  }

  std::optional<MixerProblem> problem(const MixerShape& shape) const {
    const bool fused = backend == Backend::fused && form == QuadraticForm::projected;
    return fused ? fused_problem(shape) : std::nullopt;
  }

  // A form of width x width, or of head width x head width, per head.
  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const {
    const auto side = form == QuadraticForm::full ? shape.width : shape.head_width();
    const auto square = static_cast<double>(side) * static_cast<double>(side);
    return AttentionCost{.projections = 2,
                         .form_parameters = side * side,
                         .form_operations = 2 * load.tokens * static_cast<double>(shape.heads) * square,
                         .score_width = side}
        .of(shape, load, backend);
  }
};

template <class Visitor>
void visit(Visitor& field, QuadraticOptions& o) {
  field("form", o.form, "projected: p W p^T per head; full: x U x^T with a width x width form per head");
  field("score_std", o.score_std, positive, score_std_help);
  field("backend", o.backend, backend_help);
}

class Mixer;
std::shared_ptr<Mixer> make(const QuadraticOptions& options, const MixerShape& shape);

}  // namespace metaformer
