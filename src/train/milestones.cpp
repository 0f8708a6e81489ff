#include "train/milestones.h"

namespace metaformer {

bool is_finished(const TrainConfig& config, const Progress& progress) {
  return progress.step >= config.steps || (config.patience > 0 && progress.evaluations_since_best >= config.patience);
}

bool is_at(const TrainConfig& config, const Progress& progress, std::int64_t interval) {
  return progress.step % interval == 0 || is_finished(config, progress);
}

bool lacks_evaluation(const TrainConfig& config, const Progress& progress) {
  return progress.step > 0 && is_at(config, progress, config.eval_interval) && !is_evaluated(progress);
}

bool is_checkpoint_due(const TrainConfig& config, const Progress& progress) {
  const bool is_best = progress.best && progress.best->step == progress.step;
  return !lacks_evaluation(config, progress) && (is_best || is_at(config, progress, config.checkpoint_interval));
}

}  // namespace metaformer
