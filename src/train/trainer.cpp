#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/signals.h"
#include "train/device.h"
#include "train/diagnostics.h"
#include "train/evaluation.h"
#include "train/named_tensors.h"
#include "train/progress_line.h"
#include "train/schedule.h"

namespace metaformer {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void require_same_architecture(const Checkpoint& checkpoint, const SequenceModel& model) {
  copy_by_name(checkpoint.model, named_parameters(model), (checkpoint.folder / "model.safetensors").string());
}

}  // namespace

Trainer::Trainer(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device,
                 const std::optional<Checkpoint>& checkpoint)
    : config_(experiment.config), run_(run), task_(task), device_(device), model_(task.make_model()) {
  initialise(*model_, static_cast<std::uint64_t>(config_.train.seed));
  model_->to(device);
  parameters_ = std::make_unique<ParameterBuffer>(*model_);
  optimizer_ = std::make_unique<AdamW>(*parameters_, config_.train);
  if (checkpoint) {
    require_same_architecture(*checkpoint, *model_);
    optimizer_->load_state(checkpoint->optimizer, (checkpoint->folder / "state.safetensors").string());
    progress_ = checkpoint->progress;
    first_step_ = progress_.step;
  }
  step_ = std::make_unique<EagerTrainingStep>(config_, task, *model_, *parameters_, *optimizer_, device);
  const bool evaluated = progress_.evaluated_step == first_step_;
  metrics_ = std::make_unique<MetricsLog>(run, first_step_, evaluated);
}

void Trainer::profile() { profiler_ = std::make_unique<StepProfiler>(run_.profile_file(), device_); }

bool Trainer::is_at(std::int64_t interval) const {
  return progress_.step % interval == 0 || progress_.step == config_.train.steps;
}

nlohmann::ordered_json Trainer::run() {
  ProgressLine line(first_step_, config_.train.steps, task_.tokens_per_step());
  // An evaluation that the stop of an earlier process cut short is due before the next step.
  if (progress_.step > 0 && is_at(config_.train.eval_interval) && progress_.evaluated_step != progress_.step)
    evaluate_and_save();
  while (progress_.step < config_.train.steps) {
    if (profiler_) profiler_->before_step(progress_.step - first_step_);
    train_step();
    if (profiler_) profiler_->after_step();
    if (line.is_due()) {
      read_losses();
      line.show(progress_.step, progress_.loss_sum / static_cast<double>(progress_.loss_count), learning_rate_);
    }
    if (is_at(config_.train.log_interval)) write_training_line();
    evaluate_and_save();
  }
  if (profiler_) profiler_->finish();
  return summary();
}

void Trainer::evaluate_and_save() {
  try {
    if (is_at(config_.train.eval_interval)) evaluate();
    if (const int signal = stop_signal()) throw Interrupted(signal);
  } catch (const Interrupted&) {
    save();
    log::info("stopped at step {}; go on with --resume", progress_.step);
    throw;
  }
  const bool is_best = progress_.best && progress_.best->step == progress_.step;
  if (is_best || is_at(config_.train.checkpoint_interval)) save();
}

void Trainer::train_step() {
  const auto interval = config_.train.diagnostics_interval;
  const bool diagnoses = interval > 0 && (progress_.step + 1) % interval == 0;
  const auto before = diagnoses ? parameters_->values().clone() : torch::Tensor();
  const auto start = Clock::now();
  model_->train();
  learning_rate_ = learning_rate_at(config_.train, progress_.step);
  const auto result = step_->run(progress_.step, learning_rate_);
  const auto loss = result.loss.to(torch::kDouble);
  pending_loss_ = pending_count_ == 0 ? loss : pending_loss_ + loss;
  last_norm_ = result.gradient_norm;
  ++pending_count_;
  ++progress_.step;
  if (device_.is_cpu()) read_losses();  // costs nothing there, and names the very step that diverged
  if (progress_.step > first_step_ + 1) session_seconds_ += seconds_since(start);
  progress_.train_seconds += seconds_since(start);
  if (diagnoses) diagnose(before);
}

void Trainer::diagnose(const torch::Tensor& before) {
  read_losses();  // what is not finite has no spectrum
  metrics_->write(progress_.step, "diagnostics",
                  diagnose_step(*model_, *parameters_, before, last_norm_.item<double>()));
}

void Trainer::read_losses() {
  if (pending_count_ == 0) return;
  progress_.loss_sum += pending_loss_.item<double>();
  progress_.loss_count += std::exchange(pending_count_, 0);
  const double norm = last_norm_.item<double>();
  if (std::isfinite(progress_.loss_sum) && std::isfinite(norm)) return;
  const char* what = std::isfinite(progress_.loss_sum) ? "gradient norm" : "training loss";
  throw Error(ExitCode::diverged,
              fmt::format("step {}: the {} is not finite; try a lower train.learning_rate ({} now). {}", progress_.step,
                          what, learning_rate_,
                          progress_.best ? fmt::format("The best checkpoint is step-{}", progress_.best->step)
                                         : "No checkpoint was saved"));
}

void Trainer::write_training_line() {
  read_losses();
  if (progress_.loss_count == 0) return;
  progress_.last_train_loss = progress_.loss_sum / static_cast<double>(progress_.loss_count);
  metrics_->write(progress_.step, "train",
                  {{"loss", progress_.last_train_loss},
                   {"learning_rate", learning_rate_},
                   {"gradient_norm", last_norm_.item<double>()},
                   {"seconds", progress_.train_seconds}});
  progress_.loss_sum = 0;
  progress_.loss_count = 0;
}

void Trainer::evaluate() {
  const auto& train = config_.train;
  const bool last = progress_.step == train.steps;
  if (train.eval_mode == EvaluationMode::random) {
    metrics_->write(progress_.step, "train_estimate",
                    estimate_split(*model_, task_, Split::train, train.eval_batches, train.precision, device_));
    auto estimate = estimate_split(*model_, task_, Split::validation, train.eval_batches, train.precision, device_);
    metrics_->write(progress_.step, "validation_estimate", estimate);
    progress_.validation = std::move(estimate);
  }
  if (last || train.eval_mode == EvaluationMode::whole) {
    progress_.validation = evaluate_split(*model_, task_, Split::validation, train.precision, device_);
    metrics_->write(progress_.step, "validation", progress_.validation);
  }
  const double loss = progress_.validation.at("loss").get<double>();
  if (!std::isfinite(loss))
    throw Error(ExitCode::diverged,
                fmt::format("step {}: the validation loss is not finite; try a lower train.learning_rate ({} now)",
                            progress_.step, learning_rate_));
  progress_.evaluated_step = progress_.step;
  const bool improved = !progress_.best || loss < progress_.best->loss;
  if (improved) progress_.best = BestSoFar{progress_.step, loss};
  log::info("step {}: validation {}{}", progress_.step, headline_of(task_, progress_.validation),
            improved ? " (best)" : "");
}

void Trainer::save() {
  read_losses();
  save_checkpoint(run_, progress_, named_parameters(*model_), optimizer_->state(), task_.codec(),
                  config_.train.keep_checkpoints);
}

nlohmann::ordered_json Trainer::summary() {
  const auto counts = count_parameters(*model_);
  const auto timed_steps = std::max<std::int64_t>(1, progress_.step - first_step_ - 1);
  const double ms_per_step = session_seconds_ * 1e3 / static_cast<double>(timed_steps);
  nlohmann::ordered_json summary = {
      {"steps", progress_.step},
      {"train_loss", progress_.last_train_loss},
      {"val_loss", progress_.validation.at("loss")},
      {"best_val_loss", progress_.best->loss},
      {"best_step", progress_.best->step},
      {"validation", progress_.validation},
      {"parameters", counts.all},
      {"mixer_parameters", counts.mixers},
      {"ms_per_step", ms_per_step},
      {"tokens_per_second", ms_per_step > 0 ? task_.tokens_per_step() / ms_per_step * 1e3 : 0},
      {"peak_memory_bytes", peak_memory_bytes(device_)},
      {"seed", config_.train.seed},
      {"train_seconds", progress_.train_seconds},
      {"run", std::filesystem::absolute(run_.path()).lexically_normal().string()},
  };
  write_file_atomically(run_.summary_file(), summary.dump(2) + "\n");
  return summary;
}

}  // namespace metaformer
