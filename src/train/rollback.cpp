#include "train/rollback.h"

#include <cmath>

#include "base/log.h"
#include "run/best_checkpoint.h"

namespace metaformer {

double rollback_factor(const TrainConfig& config, const Progress& progress) {
  return std::pow(rollback_factor(config.divergence), static_cast<double>(progress.rollbacks));
}

std::int64_t batch_step(const Progress& progress) {
  constexpr std::int64_t far = std::int64_t{1} << 36;
  return progress.step + progress.rollbacks * far;
}

Rollback::Rollback(const TrainConfig& config, const RunDirectory& run, const Metrics& metrics, TrainingSetup& setup)
    : config_(config), run_(run), metrics_(metrics), setup_(setup) {
  if (is<RollbackConfig>(config_.divergence.action)) initial_values_ = setup_.parameters->values().clone();
}

bool Rollback::recover(const Error& error, Progress& progress) {
  const auto* action = std::get_if<RollbackConfig>(&config_.divergence.action);
  if (error.code() != ExitCode::diverged || action == nullptr) return false;
  const auto rollbacks = progress.rollbacks + 1;
  if (rollbacks > action->limit) {
    log::warning("giving up after {} rollbacks (train.divergence.action.limit)", action->limit);
    return false;
  }
  progress = restore(load_rollback_checkpoint(run_, progress));
  require_best_checkpoint(
      run_, [&](const auto& report) { return metrics_.selection_error(report); }, progress);
  progress.rollbacks = rollbacks;
  progress.rollback_step = progress.step;
  log::warning("{}", error.what());
  log::warning("rollback {} of {}: back to step {}, with other batches and {} times the learning rate", rollbacks,
               action->limit, progress.step, rollback_factor(config_, progress));
  return true;
}

Progress Rollback::restore(const std::optional<Checkpoint>& checkpoint) {
  if (checkpoint) {
    setup_.restore(*checkpoint);
    setup_.memory->reset();  // other batches follow, which go on from nothing
    return checkpoint->progress;
  }
  setup_.restart(initial_values_);
  return {};
}

}  // namespace metaformer
