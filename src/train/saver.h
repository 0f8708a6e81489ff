#pragma once
// Saves a training as checkpoints.

#include "run/metrics_log.h"
#include "train/evaluator.h"
#include "train/training_setup.h"

namespace metaformer {

class Saver {
 public:
  // Keeps references.
  Saver(const RunDirectory& run, const Task& task, TrainingSetup& setup, Evaluator& evaluator,
        const Divergence& divergence, std::int64_t keep, ProcessGroup& group)
      : run_(run),
        task_(task),
        setup_(setup),
        evaluator_(evaluator),
        divergence_(divergence),
        keep_(keep),
        group_(group) {}

  // Saves the state at the step of `progress`, after the lines of `metrics` before it. To be called by all processes,
  // of which the first writes; the first checkpoint makes the run runs/latest. Errors: as save_checkpoint; exit code 4,
  // and nothing is saved, when weights or optimiser state are not finite; exit code 6, when the processes' weights
  // differ.
  void save(const Progress& progress, const MetricsLog& metrics);

 private:
  void require_finite() const;
  void require_same_weights() const;

  const RunDirectory& run_;
  const Task& task_;
  TrainingSetup& setup_;
  Evaluator& evaluator_;
  const Divergence& divergence_;
  std::int64_t keep_;
  ProcessGroup& group_;
  bool is_linked_ = false;  // runs/latest leads to the run
};

}  // namespace metaformer
