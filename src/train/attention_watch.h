#pragma once
// Warns, once in a training, of attention that has collapsed: in the heads of all mixers with scores each query attends
// to one token, or to all that it sees alike. Such a mixer no longer chooses by content.

#include <vector>

#include "run/progress.h"
#include "train/diagnostics.h"

namespace metaformer {

// Entropies of attention, as fractions of their maximum (AttentionMeasures), that count as collapsed. One token: the
// mean of all heads is below the first number, and every head below the second. Uniform: every head is above the third.
// In experiments/metric_failure.sh trainings that fail have a mean of 0.15 and no head above 0.45 after a fifth of
// their steps, and of 0.03 later; some that succeed have a mean of 0.14, but with heads of 0.9. One that succeeds
// (quadratic attention as published, Muon) falls below both for a while, and is warned of.
constexpr double least_mean_entropy = 0.15, least_greatest_entropy = 0.55, least_entropy_of_uniform = 0.995;

// Small scores are nearly uniform at first. Attention counts as uniform when two looks in a row, behind the warm-up of
// the learning rate, have found it so, and the mean has not fallen by more than this between them.
constexpr double learned_between_looks = 2e-4;

// Looks at evenly spaced steps of a training, besides those at train.diagnostics_interval.
constexpr std::int64_t looks_in_training = 40;

// By the entropies of all heads; none where there are no heads, and where an entropy is not a number.
CollapseKind collapsed(const std::vector<double>& entropies);

// Whether a look is due after `step` of `steps` steps.
bool is_look_due(std::int64_t step, std::int64_t steps);

class AttentionWatch {
 public:
  // Keeps references.
  AttentionWatch(const ExperimentConfig& config, StreamDiagnostics& diagnostics)
      : config_(config), diagnostics_(diagnostics) {}

  // Measures the attention, unless it has no scores or has collapsed before. Where memory is short it does without.
  void look(Progress& progress);

  // The same with what was measured after progress.step. Between two looks only one token counts.
  void note(const std::vector<double>& entropies, Progress& progress) const;

 private:
  bool stays_uniform(CollapseKind kind, double entropy, Progress& progress) const;

  const ExperimentConfig& config_;
  StreamDiagnostics& diagnostics_;
  bool has_scores_ = true;  // as far as is known
};

}  // namespace metaformer
