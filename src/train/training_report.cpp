#include "train/training_report.h"

#include <cmath>

#include "ops/device.h"

namespace metaformer {

namespace {

std::int64_t tokens_seen(const BatchStream& batches, std::int64_t step) {
  return std::llround(batches.tokens_per_step() * static_cast<double>(step));
}

std::optional<double> epochs_seen(const BatchStream& batches, std::int64_t step) {
  const double per_step = batches.epochs_per_step();
  return per_step > 0 ? std::optional(per_step * static_cast<double>(step)) : std::nullopt;
}

StepwiseSummary summarise_steps(const ExperimentConfig& config, const BatchStream& batches, const Progress& progress,
                                const TrainingClock& clock) {
  const double ms_per_step = clock.seconds_per_step(progress.step) * 1e3;
  return {.ms_per_step = ms_per_step,
          .tokens_per_second = ms_per_step > 0 ? batches.tokens_per_step() / ms_per_step * 1e3 : 0,
          .rollbacks = progress.rollbacks,
          .spikes = progress.spikes.count,
          .skipped_steps = progress.skipped_steps,
          .seed = config.train.seed,
          .tokens = tokens_seen(batches, progress.step),
          .epochs = epochs_seen(batches, progress.step),
          .clipped_fraction = static_cast<double>(progress.clipped_steps) / static_cast<double>(progress.step),
          .startup_seconds = progress.startup_seconds,
          .evaluation_seconds = progress.evaluation_seconds,
          .checkpoint_seconds = progress.checkpoint_seconds,
          .wall_seconds = clock.wall_seconds()};
}

}  // namespace

nlohmann::ordered_json training_line(const Task& task, const Progress& progress, const TrainingClock& clock,
                                     double learning_rate, double gradient_norm, torch::Device device) {
  nlohmann::ordered_json line = {
      {"loss", progress.last_train_loss},
      {"learning_rate", learning_rate},
      {"gradient_norm", gradient_norm},
      {"clipped_fraction", static_cast<double>(progress.clipped_count) / static_cast<double>(progress.loss_count)},
      {"tokens", tokens_seen(*task.batches, progress.step)}};
  if (const auto epochs = epochs_seen(*task.batches, progress.step)) line["epoch"] = *epochs;
  line.update({{"seconds", progress.train_seconds},
               {"wall_seconds", clock.wall_seconds()},
               {"evaluation_seconds", progress.evaluation_seconds},
               {"peak_memory_bytes", peak_memory_bytes(device)},
               {"rollbacks", progress.rollbacks},
               {"spikes", progress.spikes.count},
               {"skipped_steps", progress.skipped_steps}});
  return line;
}

RunSummary summarise(const ExperimentConfig& config, const Task& task, const SequenceModel& model,
                     const Progress& progress, const TrainingClock& clock, torch::Device device) {
  const auto counts = count_parameters(model);
  return {.steps = progress.step,
          .train_loss = progress.last_train_loss,
          .val_loss = progress.validation.at("loss"),
          .best_val_loss = progress.best->loss,
          .best_val_error = progress.best->error,
          .best_step = progress.best->step,
          .validation = progress.validation,
          .test = {},
          .stopped_early = progress.step < config.train.steps,
          .parameters = counts.all,
          .mixer_parameters = counts.mixers,
          .stepwise = summarise_steps(config, *task.batches, progress, clock),
          .peak_memory_bytes = peak_memory_bytes(device),
          .train_seconds = progress.train_seconds,
          .run = {},
          .baselines = {},
          .attention_collapse = progress.collapse};
}

}  // namespace metaformer
