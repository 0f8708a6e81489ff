#pragma once
// The options of scaled dot product attention, and what it costs. No torch.

#include "attention/score_options.h"

namespace metaformer {

struct ScaledDotProductOptions {
  static constexpr std::string_view kind = "scaled_dot_product";
  static constexpr std::string_view summary = "softmax(q k^T / sqrt(k)) v, three projections (2017)";
  static constexpr bool has_scores = true;
  std::optional<double> score_std = 1;
  bool qk_norm = false;
  bool learned_temperature = false;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const { return {Backend::composed, Backend::reference}; }
  bool can_cross() const { return true; }

  std::optional<MixerProblem> problem(const MixerShape&) const {
    return temperature_problem(learned_temperature, qk_norm);
  }

  // Projections to queries, keys, values and the output.
  MixerCost cost(const MixerShape& shape, const MixerLoad& load) const {
    return AttentionCost{.projections = 4,
                         .score_width = shape.head_width(),
                         .qk_norms = qk_norm ? 2 : 0,
                         .learned_temperature = learned_temperature}
        .of(shape, load, backend);
  }
};

template <class Visitor>
void visit(Visitor& field, ScaledDotProductOptions& o) {
  field("score_std", o.score_std, positive,
        "standard deviation of the initial scores between different tokens; null: queries and keys are drawn from "
        "N(0, 0.02), as in GPT-2");
  field("qk_norm", o.qk_norm, qk_norm_help);
  field("learned_temperature", o.learned_temperature, learned_temperature_help);
  field("backend", o.backend, backend_help);
}

class Mixer;
std::shared_ptr<Mixer> make(const ScaledDotProductOptions& options, const MixerShape& shape);

}  // namespace metaformer
