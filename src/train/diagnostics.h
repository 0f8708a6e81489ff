#pragma once
// What goes on inside a model while it trains, by block and by module outside the blocks.

#include <nlohmann/json.hpp>

#include "attention/mixer.h"
#include "model/parameter_buffer.h"
#include "model/sequence_model.h"

namespace metaformer {

// Properties of one mixer's score form F (attention/mixer.h), averaged over its heads.
struct FormDiagnostics {
  double asymmetry = 0;          // |F - F^T| / (2 |F|), Frobenius: 0 symmetric, 1 antisymmetric
  double effective_rank = 0;     // exp of the entropy of the normalised singular values (Roy and Vetterli 2007)
  std::vector<double> spectrum;  // singular values, largest first
};
FormDiagnostics diagnose_form(const ScoreForm& form);

// After a step: per group gradient_norm (before clipping) and update_ratio (norm of the step's change over the norm of
// what it changed); for blocks whose mixer has scores also score_asymmetry, score_effective_rank and score_spectrum.
// `before`: the parameter buffer before the step. `gradient_norm`: of the whole gradient before clipping; the buffer
// holds the clipped one.
nlohmann::ordered_json diagnose_step(const SequenceModel& model, ParameterBuffer& parameters,
                                     const torch::Tensor& before, double gradient_norm);

}  // namespace metaformer
