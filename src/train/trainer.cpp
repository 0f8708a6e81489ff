#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "infer/evaluation.h"
#include "ops/device.h"
#include "run/named_tensors.h"
#include "train/best_checkpoint.h"
#include "train/diagnostics.h"
#include "train/graph_training_step.h"
#include "train/progress_line.h"
#include "train/schedule.h"
#include "train/spike_detector.h"
#include "train/training_sample.h"

namespace metaformer {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// After a rollback other batches are drawn: those of steps that no run reaches.
std::int64_t batch_step(const Progress& progress) {
  constexpr std::int64_t far = std::int64_t{1} << 36;
  return progress.step + progress.rollbacks * far;
}

// Adds the time of an evaluation, also of one that a signal cuts short.
class EvaluationTimer {
 public:
  EvaluationTimer(Progress& progress, ProgressLine& line) : progress_(progress), line_(line) {}
  EvaluationTimer(const EvaluationTimer&) = delete;
  EvaluationTimer& operator=(const EvaluationTimer&) = delete;
  ~EvaluationTimer() {
    const double seconds = seconds_since(start_);
    progress_.evaluation_seconds += seconds;
    line_.add_evaluation(seconds);
  }

 private:
  Progress& progress_;
  ProgressLine& line_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

bool is_finished(const TrainConfig& config, const Progress& progress) {
  return progress.step >= config.steps || (config.patience > 0 && progress.evaluations_since_best >= config.patience);
}

Trainer::Trainer(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device,
                 const std::optional<Checkpoint>& checkpoint)
    : config_(experiment.config),
      run_(run),
      task_(task),
      device_(device),
      model_(task.make_model()),
      line_(config_.train, task.tokens_per_step()) {
  initialise(*model_, static_cast<std::uint64_t>(config_.train.seed));
  if (!checkpoint) task.prepare(*model_);
  model_->to(device);
  parameters_ = std::make_unique<ParameterBuffer>(*model_);
  optimizer_ = std::make_unique<AdamW>(*parameters_, config_.train);
  if (config_.train.on_divergence == OnDivergence::rollback) initial_values_ = parameters_->values().clone();
  if (checkpoint) restore(checkpoint);
  first_step_ = progress_.step;
  earlier_wall_seconds_ = progress_.wall_seconds;
  step_ = make_training_step(config_, task, *model_, *parameters_, *optimizer_, device);
  metrics_ = std::make_unique<MetricsLog>(run, log_position());
  metrics_->write_config(config_);
}

void Trainer::profile() { profiler_ = std::make_unique<StepProfiler>(run_.profile_file(), device_); }

bool Trainer::is_at(std::int64_t interval) const {
  return progress_.step % interval == 0 || is_finished(config_.train, progress_);
}

bool Trainer::lacks_evaluation() const {
  return progress_.step > 0 && is_at(config_.train.eval_interval) && !is_evaluated(progress_);
}

bool Trainer::is_checkpoint_due() const {
  const bool is_best = progress_.best && progress_.best->step == progress_.step;
  return !lacks_evaluation() && (is_best || is_at(config_.train.checkpoint_interval));
}

// Only their end has estimates and the whole split.
LogPosition Trainer::log_position() const {
  const bool estimates = config_.train.eval_mode == EvaluationMode::random;
  return {.step = progress_.step,
          .evaluated = is_evaluated(progress_),
          .rollbacks = progress_.rollbacks,
          .past_end = estimates && !is_finished(config_.train, progress_)};
}

nlohmann::ordered_json Trainer::run() {
  set_stop_notice("stopping after this step; again to quit");
  write_sample();  // one that the stop of an earlier process cut short
  while (lacks_evaluation() || !is_finished(config_.train, progress_)) {
    try {
      lacks_evaluation() ? make_up_evaluation() : advance();
    } catch (const Error& error) {
      if (!roll_back(error)) throw;
    }
  }
  if (profiler_) profiler_->finish();
  if (progress_.step < config_.train.steps)
    log::info("step {}: {} evaluations without a better validation result (train.patience {}); training ends early",
              progress_.step, progress_.evaluations_since_best, config_.train.patience);
  return summary();
}

void Trainer::advance() {
  if (profiler_) profiler_->before_step(progress_.step - first_step_);
  train_step();
  if (profiler_) profiler_->after_step();
  if (line_.is_due()) {
    read_losses();
    line_.show(progress_.step, learning_rate_, seconds_per_step());
  }
  if (is_at(config_.train.log_interval)) write_training_line();
  write_sample();
  evaluate_and_save();
}

bool Trainer::roll_back(const Error& error) {
  const auto& train = config_.train;
  if (error.code() != ExitCode::diverged || train.on_divergence == OnDivergence::stop) return false;
  const auto rollbacks = progress_.rollbacks + 1, failed_step = progress_.step;
  if (rollbacks > train.max_rollbacks) {
    log::warning("giving up after {} rollbacks (train.max_rollbacks)", train.max_rollbacks);
    return false;
  }
  const auto earlier_rollbacks = progress_.rollbacks;
  restore(load_rollback_checkpoint(run_, progress_));
  require_best_checkpoint(run_, task_, progress_);
  progress_.rollbacks = earlier_rollbacks;
  metrics_ = std::make_unique<MetricsLog>(run_, log_position());
  progress_.rollbacks = rollbacks;
  progress_.rollback_step = progress_.step;
  metrics_->write(progress_.step, "rollback", {{"failed_step", failed_step}, {"rollbacks", rollbacks}});
  log::warning("{}", error.what());
  log::warning("rollback {} of {}: back to step {}, with other batches and {} times the learning rate", rollbacks,
               train.max_rollbacks, progress_.step, std::pow(train.rollback_factor, rollbacks));
  return true;
}

void Trainer::restore(const std::optional<Checkpoint>& checkpoint) {
  pending_count_ = 0;
  recalibrated_step_ = -1;
  if (checkpoint) {
    copy_by_name(checkpoint->model, named_state(*model_), (checkpoint->folder / "model.safetensors").string());
    optimizer_->load_state(checkpoint->optimizer, (checkpoint->folder / "state.safetensors").string());
    progress_ = checkpoint->progress;
  } else {
    const torch::NoGradGuard no_grad;
    parameters_->values().copy_(initial_values_);
    optimizer_->reset();
    progress_ = {};
  }
}

void Trainer::evaluate_and_save() {
  try {
    if (lacks_evaluation()) evaluate();
    throw_if_stopped();
  } catch (const Interrupted&) {
    save();
    log::info("stopped at step {}; go on with --resume", progress_.step);
    throw;
  }
  const bool asked = take_save_request();
  if (asked || is_checkpoint_due()) save();
  if (asked) log::info("saved at step {}, as SIGUSR1 asked", progress_.step);
}

// The checkpoint that was saved without it is replaced.
void Trainer::make_up_evaluation() {
  evaluate_and_save();
  if (!is_checkpoint_due()) save();
}

void Trainer::train_step() {
  const auto interval = config_.train.diagnostics_interval;
  const bool diagnoses = interval > 0 && (progress_.step + 1) % interval == 0;
  const auto before = diagnoses ? parameters_->values().clone() : torch::Tensor();
  const auto start = Clock::now();
  model_->train();
  learning_rate_ = learning_rate_at(config_.train, progress_.step) *
                   std::pow(config_.train.rollback_factor, static_cast<double>(progress_.rollbacks));
  const auto result = run_step();
  const auto loss = result.loss.to(torch::kDouble);
  const auto clipped = is_clipped(result.gradient_norm);
  pending_loss_ = pending_count_ == 0 ? loss : pending_loss_ + loss;
  pending_clipped_ = pending_count_ == 0 ? clipped : pending_clipped_ + clipped;
  last_norm_ = result.gradient_norm;
  ++pending_count_;
  ++progress_.step;
  if (device_.is_cpu()) read_losses();  // costs nothing there, and names the very step that diverged
  count_time(start);
  if (diagnoses) diagnose(before);
}

torch::Tensor Trainer::is_clipped(const torch::Tensor& gradient_norm) const {
  const double limit = config_.train.clip;
  return (limit > 0 ? gradient_norm > limit : torch::zeros_like(gradient_norm)).to(torch::kLong);
}

void Trainer::count_time(std::chrono::steady_clock::time_point start) {
  if (progress_.step > first_step_ + 1) session_seconds_ += seconds_since(start);
  progress_.train_seconds += seconds_since(start);
}

// Not enough memory is an error of its own, which says what did not fit.
StepResult Trainer::run_step() {
  const auto& [train, model] = std::tie(config_.train, config_.model);
  const auto explain = [&](const std::string& why) {
    return Error(ExitCode::out_of_memory,
                 fmt::format("step {}: out of memory with {} sequences of up to {} tokens at once ({} layers, width "
                             "{}): {}; lower train.batch_size (and raise train.accumulate), model.context or "
                             "model.width",
                             progress_.step + 1, train.batch_size, model.context, model.layers, model.width, why));
  };
  try {
    return step_->run(batch_step(progress_), learning_rate_, spike_watch());
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (is_out_of_memory(error)) throw explain(message.substr(0, message.find('\n')));
    throw;
  } catch (const std::bad_alloc&) {
    throw explain("the host has no more");
  }
}

AcceptNorm Trainer::spike_watch() {
  const auto& train = config_.train;
  if (train.spike_threshold == 0) return {};
  return [this, &train](double norm) {
    if (!is_spike(progress_.spikes, norm, train.spike_threshold)) return true;
    const bool skips = train.on_spike == OnSpike::skip;
    log::warning("step {}: the gradient norm {:.3g} is a spike (number {}){}", progress_.step + 1, norm,
                 progress_.spikes.count, skips ? "; its update is skipped" : "");
    return !skips;
  };
}

void Trainer::diagnose(const torch::Tensor& before) {
  read_losses();  // what is not finite has no spectrum
  metrics_->write(progress_.step, "diagnostics",
                  diagnose_step(*model_, *parameters_, before, last_norm_.item<double>()));
}

void Trainer::read_losses() {
  if (pending_count_ == 0) return;
  const auto start = Clock::now();
  const double loss = pending_loss_.item<double>();
  const auto count = std::exchange(pending_count_, 0), clipped = pending_clipped_.item<std::int64_t>();
  progress_.loss_sum += loss;
  progress_.loss_count += count;
  progress_.clipped_count += clipped;
  progress_.clipped_steps += clipped;
  const double norm = last_norm_.item<double>();
  if (!device_.is_cpu()) count_time(start);  // the host has waited for steps that it had only started
  if (std::isfinite(progress_.loss_sum) && std::isfinite(norm)) return line_.add_losses(loss, count);
  throw Error(ExitCode::diverged,
              describe_divergence(std::isfinite(progress_.loss_sum) ? "gradient norm" : "training loss"));
}

// Names the first tensor that is not finite, and what to do.
std::string Trainer::describe_divergence(const std::string& what) const {
  std::string culprit;
  if (const auto* gradient = parameters_->first_not_finite(parameters_->gradients())) {
    culprit = fmt::format(", first in the gradient of {}", gradient->name);
  } else if (const auto* value = parameters_->first_not_finite(parameters_->values())) {
    culprit = fmt::format(", first in {}", value->name);
  }
  return fmt::format("step {}: the {} is not finite{}; try a lower train.learning_rate ({} now). {}", progress_.step,
                     what, culprit, learning_rate_,
                     progress_.best ? fmt::format("The best checkpoint is step-{}", progress_.best->step)
                                    : "No evaluation came before it");
}

void Trainer::write_training_line() {
  read_losses();
  if (progress_.loss_count == 0) return;
  progress_.last_train_loss = progress_.loss_sum / static_cast<double>(progress_.loss_count);
  nlohmann::ordered_json line = {
      {"loss", progress_.last_train_loss},
      {"learning_rate", learning_rate_},
      {"gradient_norm", last_norm_.item<double>()},
      {"clipped_fraction", static_cast<double>(progress_.clipped_count) / static_cast<double>(progress_.loss_count)},
      {"tokens", tokens_seen()}};
  if (task_.epochs_per_step() > 0) line["epoch"] = epochs_seen();
  line.update({{"seconds", progress_.train_seconds},
               {"wall_seconds", wall_seconds()},
               {"evaluation_seconds", progress_.evaluation_seconds},
               {"peak_memory_bytes", peak_memory_bytes(device_)},
               {"rollbacks", progress_.rollbacks},
               {"spikes", progress_.spikes.count}});
  metrics_->write(progress_.step, "train", line);
  progress_.loss_sum = 0;
  progress_.loss_count = progress_.clipped_count = 0;
}

std::int64_t Trainer::tokens_seen() const {
  return std::llround(task_.tokens_per_step() * static_cast<double>(progress_.step));
}

double Trainer::epochs_seen() const { return task_.epochs_per_step() * static_cast<double>(progress_.step); }

double Trainer::seconds_per_step() const {
  const auto timed_steps = progress_.step - first_step_ - 1;
  return timed_steps > 0 ? session_seconds_ / static_cast<double>(timed_steps) : 0;
}

double Trainer::wall_seconds() const { return earlier_wall_seconds_ + seconds_since(start_); }

// A stop signal or the end of an earlier process may have come between a step and its text: it is then still due.
void Trainer::write_sample() {
  const auto interval = config_.train.sample_interval;
  if (interval == 0 || progress_.step == 0 || progress_.step % interval != 0) return;
  if (metrics_->last_sampled_step() == progress_.step) return;
  read_losses();  // weights that are not finite have nothing to write
  const auto sample = metaformer::write_sample(*model_, *task_.codec().tokenizer, device_,
                                               static_cast<std::uint64_t>(config_.train.seed), progress_.step);
  if (!sample) return;
  metrics_->write_sample(progress_.step, *sample);
  log_sample(progress_.step, *sample);
}

void Trainer::recalibrate() {
  if (recalibrated_step_ == progress_.step) return;
  task_.before_evaluation(*model_, device_);
  recalibrated_step_ = progress_.step;
}

nlohmann::ordered_json Trainer::estimate() {
  const auto& train = config_.train;
  nlohmann::ordered_json metrics;
  for (const auto split : {Split::train, Split::validation}) {
    metrics = estimate_split(*model_, task_, split, train.eval_batches, train.precision, device_);
    metrics_->write(progress_.step, fmt::format("{}_estimate", to_string(split)), metrics);
  }
  return metrics;
}

nlohmann::ordered_json Trainer::evaluate_whole() {
  auto metrics = evaluate_split(*model_, task_, Split::validation, config_.train.precision, device_);
  metrics_->write(progress_.step, "validation", metrics);
  return metrics;
}

// Estimates are compared with estimates; the whole split, evaluated where training ends, is for the report. A stop in
// between leaves the progress as it was: not evaluated.
void Trainer::evaluate() {
  read_losses();
  line_.record(progress_.step, learning_rate_, seconds_per_step());
  const EvaluationTimer timer(progress_, line_);
  const bool estimates = config_.train.eval_mode == EvaluationMode::random;
  recalibrate();
  auto after = progress_;
  after.validation = estimates ? estimate() : evaluate_whole();
  const double loss = after.validation.at("loss").get<double>();
  if (!std::isfinite(loss)) throw Error(ExitCode::diverged, describe_divergence("validation loss"));
  const double error = task_.selection_error(after.validation);
  const bool improved = !after.best || error < after.best->error;
  after.evaluations_since_best = improved ? 0 : after.evaluations_since_best + 1;
  if (improved) after.best = BestSoFar{after.step, loss, error};
  after.evaluated_step = after.step;
  if (estimates && is_finished(config_.train, after)) after.validation = evaluate_whole();
  progress_ = std::move(after);
  log::info("step {}: validation {}{}", progress_.step, headline_of(task_, progress_.validation),
            improved ? " (best)" : "");
}

void Trainer::save() {
  read_losses();
  if (parameters_->first_not_finite(parameters_->values()))
    throw Error(ExitCode::diverged, describe_divergence("state"));
  if (const auto name = optimizer_->first_not_finite(); !name.empty())
    throw Error(ExitCode::diverged, describe_divergence(fmt::format("moment of {}", name)));
  recalibrate();
  metrics_->sync();
  progress_.wall_seconds = wall_seconds();
  progress_.scheduled = is_checkpoint_due();
  save_checkpoint(run_, progress_, named_state(*model_), optimizer_->state(), task_.codec(),
                  config_.train.keep_checkpoints);
}

// What the checkpoint that validation chose gets on the test split, which nothing before has looked at.
nlohmann::ordered_json Trainer::test() {
  if (progress_.best->step != progress_.step) {
    const auto best = load_checkpoint(run_, step_name(progress_.best->step), WithOptimizer::no);
    copy_by_name(best.model, named_state(*model_), (best.folder / "model.safetensors").string());
  }
  auto result = evaluate_split(*model_, task_, Split::test, config_.train.precision, device_);
  metrics_->write(progress_.best->step, "test", result);
  log::info("test, step {}: {}", progress_.best->step, headline_of(task_, result));
  return result;
}

nlohmann::ordered_json Trainer::summary() {
  const auto counts = count_parameters(*model_);
  const double ms_per_step = seconds_per_step() * 1e3;
  return {
      {"steps", progress_.step},
      {"train_loss", progress_.last_train_loss},
      {"val_loss", progress_.validation.at("loss")},
      {"best_val_loss", progress_.best->loss},
      {"best_val_error", progress_.best->error},
      {"best_step", progress_.best->step},
      {"validation", progress_.validation},
      {"test", task_.has(Split::test) ? test() : nlohmann::ordered_json()},
      {"stopped_early", progress_.step < config_.train.steps},
      {"parameters", counts.all},
      {"mixer_parameters", counts.mixers},
      {"ms_per_step", ms_per_step},
      {"tokens_per_second", ms_per_step > 0 ? task_.tokens_per_step() / ms_per_step * 1e3 : 0},
      {"peak_memory_bytes", peak_memory_bytes(device_)},
      {"rollbacks", progress_.rollbacks},
      {"spikes", progress_.spikes.count},
      {"seed", config_.train.seed},
      {"tokens", tokens_seen()},
      {"epochs", task_.epochs_per_step() > 0 ? nlohmann::ordered_json(epochs_seen()) : nlohmann::ordered_json()},
      {"clipped_fraction", static_cast<double>(progress_.clipped_steps) / static_cast<double>(progress_.step)},
      {"train_seconds", progress_.train_seconds},
      {"evaluation_seconds", progress_.evaluation_seconds},
      {"wall_seconds", wall_seconds()},
      {"run", std::filesystem::absolute(run_.path()).lexically_normal().string()},
  };
}

}  // namespace metaformer
