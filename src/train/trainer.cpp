#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "distributed/process_group.h"
#include "infer/sampling.h"
#include "model/make_model.h"
#include "model/parameters.h"
#include "ops/device.h"
#include "ops/named_tensors.h"
#include "run/checkpoint.h"
#include "train/divergence.h"
#include "train/evaluator.h"
#include "train/optim/layer_rates.h"
#include "train/optim/make_optimizer.h"
#include "train/optim/schedule.h"
#include "train/preparation.h"
#include "train/step/training_step.h"
#include "train/training_log.h"

namespace metaformer {

TrainingSetup::TrainingSetup(const ExperimentConfig& config, const Task& task, torch::Device device,
                             const InitialWeights* initial, ProcessGroup& group)
    : model(make_model(config, sizes_of(task.data->codec()))),
      schedule(make_schedule(config.train, width_of(config.model))),
      rows_(config.train.batch_size * config.train.accumulate) {
  initialise(*model, static_cast<std::uint64_t>(config.train.seed));
  if (initial != nullptr) taken = take_weights(*initial, config, task.data->codec(), *model);
  model->to(device);
  parameters = std::make_unique<ParameterBuffer>(*model);
  set_layer_rates(*parameters, config.train);
  if (config.train.precision == Precision::fp16) loss_scale = std::make_unique<LossScale>(device);
  const auto scale = loss_scale ? loss_scale->of_gradients() : GradientScale{};
  auto sharded = config.train.shard_optimizer && group.size() > 1
                     ? std::make_unique<ShardedOptimizer>(*parameters, config.train, scale, group)
                     : nullptr;
  const auto* shards = sharded ? &sharded->shards() : nullptr;
  optimizer = sharded ? std::move(sharded) : make_optimizer(*parameters, config.train, scale);
  average = std::make_unique<WeightAverage>(*parameters, config.train.weight_average.decay);
  StepParts parts{config, task, *model, *parameters, *optimizer, device, loss_scale.get()};
  parts.group = &group;
  parts.shards = shards;
  if (group.size() > 1) gradient_sum = std::make_unique<GradientSum>(group, *parameters, shards);
  parts.gradient_sum = gradient_sum.get();
  memory = std::make_unique<StepMemory>(*model, batches_of_step(parts), slices_of_batch(parts), group);
  parts.memory = memory.get();
  step = make_training_step(parts);
}

NamedTensors TrainingSetup::state() const {
  auto all = optimizer->state();
  const auto add = [&](NamedTensors more) { all.insert(all.end(), more.begin(), more.end()); };
  if (loss_scale) add(loss_scale->state());
  add(average->state());
  add(memory->tensors());
  return all;
}

void TrainingSetup::restore(const Checkpoint& checkpoint) {
  const WeightAverage::Use use(*average);
  copy_by_name(checkpoint.model, named_state(*model), (checkpoint.folder / "model.safetensors").string());
  const auto file = (checkpoint.folder / "state.safetensors").string();
  auto saved = checkpoint.optimizer;
  memory->reset();
  const auto targets = state();
  memory->take(saved, rows_, file);
  copy_by_name(saved, targets, file);
  optimizer->load(targets);
}

void TrainingSetup::restart(const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  parameters->values().copy_(values);
  optimizer->reset();
  if (loss_scale) loss_scale->reset();
  average->reset();
  memory->reset();
}

void Saver::require_finite() const {
  if (setup_.parameters->first_not_finite(setup_.parameters->values())) throw divergence_.error("state");
  if (const auto name = setup_.optimizer->first_not_finite(); !name.empty())
    throw divergence_.error(fmt::format("optimiser's {}", name));
}

// All processes begin with the same weights and make the same updates. A machine that computes otherwise must not stay
// unnoticed.
void Saver::require_same_weights() const {
  if (group_.size() == 1) return;
  const auto values = setup_.parameters->values().cpu();
  const auto digests = group_.gather(sha256({reinterpret_cast<const char*>(values.const_data_ptr()), values.nbytes()}));
  for (std::size_t rank = 1; rank < digests.size(); ++rank)
    if (digests[rank] != digests.front())
      throw Error(ExitCode::process_lost,
                  fmt::format("the weights of rank {} differ from those of rank 0; nothing is saved", rank));
}

void Saver::save(const Progress& progress, const MetricsLog& metrics) {
  require_finite();
  require_same_weights();
  const WeightAverage::Use average(*setup_.average);
  evaluator_.adapt(progress.step);
  const auto state = setup_.state();
  if (!group_.is_first()) return;
  metrics.sync();
  save_checkpoint(run_, progress, named_state(*setup_.model), state, task_.data->codec(), keep_);
  if (!std::exchange(is_linked_, true)) link_latest(run_.path());
}

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

namespace {

using Clock = TrainingClock::Clock;

// Adds the time of an evaluation, also of one that a signal cuts short.
class EvaluationTimer {
 public:
  EvaluationTimer(Progress& progress, ProgressLine& line) : progress_(progress), line_(line) {}
  EvaluationTimer(const EvaluationTimer&) = delete;
  EvaluationTimer& operator=(const EvaluationTimer&) = delete;
  ~EvaluationTimer() {
    const double seconds = TrainingClock::seconds_since(start_);
    progress_.evaluation_seconds += seconds;
    line_.add_evaluation(seconds);
  }

 private:
  Progress& progress_;
  ProgressLine& line_;
  const Clock::time_point start_ = Clock::now();
};

// Only their end has estimates and the whole split.
LogPosition log_position(const TrainConfig& config, const Progress& progress) {
  const bool estimates = is<RandomEvaluationConfig>(config.evaluation);
  return {.step = progress.step,
          .evaluated = is_evaluated(progress),
          .rollbacks = progress.rollbacks,
          .past_end = estimates && !is_finished(config, progress)};
}

// The error for too little memory, which says what did not fit.
Error out_of_memory(const ExperimentConfig& config, std::int64_t step, const std::string& why) {
  return Error(ExitCode::out_of_memory,
               fmt::format("step {}: out of memory with {} sequences of up to {} tokens at once ({}): {}; lower "
                           "train.batch_size (and raise train.accumulate), model.context or model.width",
                           step, config.train.batch_size, context_of(config.model), describe_model(config), why));
}

}  // namespace

Trainer::Trainer(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device,
                 ProcessGroup& group, const std::optional<Checkpoint>& checkpoint,
                 const std::optional<InitialWeights>& initial)
    : config_(experiment.config),
      run_(run),
      task_(task),
      device_(device),
      group_(group),
      setup_(config_, task, device, initial ? &*initial : nullptr, group),
      divergence_(*setup_.parameters, progress_, learning_rate_),
      evaluator_(config_, task, *setup_.model, device, divergence_, group),
      saver_(run, task, setup_, evaluator_, divergence_, config_.train.keep_checkpoints, group),
      rollback_(config_.train, run, *task.metrics, setup_),
      line_(config_.train, task.batches->tokens_per_step()),
      diagnostics_(config_, task, *setup_.model, device),
      attention_watch_(config_, diagnostics_) {
  if (checkpoint) {
    setup_.restore(*checkpoint);
    progress_ = checkpoint->progress;
  } else {
    task.adaptation->before_training(*setup_.model);
  }
  progress_.startup_seconds += seconds_since_program_start();
  clock_.emplace(progress_);
  metrics_ = open_metrics(log_position(config_.train, progress_));
  metrics_->write_config(config_);
}

std::unique_ptr<MetricsLog> Trainer::open_metrics(const LogPosition& position) const {
  return group_.is_first() ? std::make_unique<MetricsLog>(run_, position) : std::make_unique<MetricsLog>();
}

void Trainer::profile() { profiler_ = std::make_unique<StepProfiler>(run_.profile_file(), device_); }

RunSummary Trainer::run() {
  const auto& train = config_.train;
  if (group_.is_first()) set_stop_notice("stopping after this step; again to quit");
  // Several processes stop together.
  std::optional<StopDeferral> until_all_stop;
  if (group_.size() > 1) until_all_stop.emplace();
  write_sample();  // one that the stop of an earlier process cut short
  while (lacks_evaluation(train, progress_) || !is_finished(train, progress_)) {
    try {
      lacks_evaluation(train, progress_) ? make_up_evaluation() : advance();
    } catch (const Error& error) {
      if (!roll_back(error)) throw;
    }
  }
  if (profiler_) profiler_->finish();
  if (progress_.step < train.steps)
    log::info("step {}: {} evaluations without a better validation result (train.patience {}); training ends early",
              progress_.step, progress_.evaluations_since_best, train.patience);
  return summary();
}

void Trainer::advance() {
  if (profiler_) profiler_->before_step(progress_.step - clock_->first_step());
  train_step();
  if (profiler_) profiler_->after_step();
  if (line_.is_due()) {
    if (group_.size() == 1) read_losses();  // several processes do so at the same steps, to notice a divergence at once
    line_.show(progress_.step, learning_rate_, clock_->seconds_per_step(progress_.step));
  }
  if (is_at(config_.train, progress_, config_.train.log_interval)) write_training_line();
  write_sample();
  evaluate_and_save();
}

void Trainer::train_step() {
  const auto& train = config_.train;
  const bool diagnoses = train.diagnostics_interval > 0 && (progress_.step + 1) % train.diagnostics_interval == 0;
  const auto before = diagnoses ? setup_.parameters->values().clone() : torch::Tensor();
  const auto start = Clock::now();
  learning_rate_ = setup_.schedule->rate(progress_.step) * rollback_factor(train, progress_);
  losses_.add(run_step(), train.clip);
  ++progress_.step;
  setup_.average->update(progress_.step);
  if (device_.is_cpu()) read_losses();  // costs nothing there, and names the very step that diverged
  clock_->count(progress_, start);
  diagnoses ? write_diagnostics(before) : watch_attention();
}

StepResult Trainer::run_step() {
  try {
    return setup_.step->run(batch_step(progress_), learning_rate_, spike_watch(config_.train, progress_));
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw out_of_memory(config_, progress_.step + 1, describe_out_of_memory(error));
    throw;
  }
}

void Trainer::read_losses() {
  if (losses_.empty()) return;
  const auto start = Clock::now();
  const auto sums = losses_.take();
  progress_.loss_sum += sums.loss;
  progress_.loss_count += sums.steps - sums.skipped_steps;
  progress_.skipped_steps += sums.skipped_steps;
  progress_.clipped_count += sums.clipped_steps;
  progress_.clipped_steps += sums.clipped_steps;
  const double norm = losses_.last_norm();
  if (!device_.is_cpu()) clock_->count(progress_, start);  // the host has waited for steps that it had only started
  if (!std::isfinite(progress_.loss_sum)) throw divergence_.error("training loss");
  if (sums.exhausted) throw divergence_.error("gradient norm, even with a loss scale of 1,");
  if (!std::isfinite(norm) && !losses_.last_was_skipped()) throw divergence_.error("gradient norm");
  line_.add_losses(sums.loss, sums.steps - sums.skipped_steps);
  line_.set_skipped_steps(progress_.skipped_steps);
}

void Trainer::write_training_line() {
  read_losses();
  if (progress_.loss_count == 0) return;
  progress_.last_train_loss = progress_.loss_sum / static_cast<double>(progress_.loss_count);
  metrics_->write(progress_.step, "train",
                  training_line(task_, progress_, *clock_, learning_rate_, losses_.last_norm(), device_));
  progress_.loss_sum = 0;
  progress_.loss_count = progress_.clipped_count = 0;
}

void Trainer::write_diagnostics(const torch::Tensor& before) {
  read_losses();  // what is not finite has no spectrum
  if (!group_.is_first()) return;
  auto groups = diagnose_step(*setup_.model, *setup_.parameters, before, losses_.last_norm());
  const auto stacks = diagnostics_.measure(StreamDiagnostics::Gradients::of_stream);
  add_to_json(stacks, groups);
  metrics_->write(progress_.step, "diagnostics", groups);
  attention_watch_.note(attention_entropies(stacks), progress_);
}

void Trainer::watch_attention() {
  if (!is_look_due(progress_.step, config_.train.steps)) return;
  read_losses();  // of all processes at the same steps; weights that are not finite have no attention
  if (group_.is_first()) attention_watch_.look(progress_);
}

// A stop signal or the end of an earlier process may have come between a step and its text: it is then still due.
void Trainer::write_sample() {
  const auto* task = std::get_if<LanguageModelConfig>(&config_.task);
  const auto interval = task == nullptr ? 0 : task->sample_interval, step = progress_.step;
  if (interval == 0 || step == 0 || step % interval != 0) return;
  read_losses();  // weights that are not finite have nothing to write
  if (!group_.is_first() || metrics_->last_sampled_step() == step) return;
  const WeightAverage::Use average(*setup_.average);
  const auto sample = metaformer::write_sample(*setup_.model, *task_.data->codec().tokenizer, device_,
                                               static_cast<std::uint64_t>(config_.train.seed), step);
  if (!sample) return;
  metrics_->write_sample(step, *sample);
  log_sample(step, *sample);
}

// A stop in between leaves the progress as it was: not evaluated.
void Trainer::evaluate() {
  read_losses();
  line_.record(progress_.step, learning_rate_, clock_->seconds_per_step(progress_.step));
  const EvaluationTimer timer(progress_, line_);
  const WeightAverage::Use average(*setup_.average);
  progress_ = evaluator_.evaluate(run_, progress_, *metrics_);
}

void Trainer::evaluate_and_save() {
  try {
    if (lacks_evaluation(config_.train, progress_)) evaluate();
    throw_if_any_stopped(group_);
  } catch (const Interrupted&) {
    save();
    log::info("stopped at step {}; go on with --resume", progress_.step);
    throw;
  }
  const bool asked = take_save_request_of_any(group_);
  if (asked || is_checkpoint_due(config_.train, progress_)) save();
  if (asked) log::info("saved at step {}, as SIGUSR1 asked", progress_.step);
}

// The checkpoint that was saved without it is replaced.
void Trainer::make_up_evaluation() {
  evaluate_and_save();
  if (!is_checkpoint_due(config_.train, progress_)) save();
}

void Trainer::save() {
  read_losses();
  progress_.wall_seconds = clock_->wall_seconds();
  progress_.scheduled = is_checkpoint_due(config_.train, progress_);
  const auto start = Clock::now();
  saver_.save(progress_, *metrics_);
  progress_.checkpoint_seconds += TrainingClock::seconds_since(start);
}

bool Trainer::roll_back(const Error& error) {
  const auto failed_step = progress_.step, earlier_rollbacks = progress_.rollbacks;
  if (!rollback_.recover(error, progress_)) return false;
  losses_.clear();
  evaluator_.forget();
  auto position = log_position(config_.train, progress_);
  position.rollbacks = earlier_rollbacks;
  metrics_ = open_metrics(position);
  metrics_->write_config(config_);
  metrics_->write(progress_.step, "rollback", {{"failed_step", failed_step}, {"rollbacks", progress_.rollbacks}});
  return true;
}

RunSummary Trainer::summary() {
  const WeightAverage::Use average(*setup_.average);
  auto test = task_.batches->has(Split::test) ? evaluator_.test(run_, progress_, *metrics_) : nlohmann::ordered_json();
  auto summary = summarise(config_, task_, *setup_.model, progress_, *clock_, device_);
  summary.test = std::move(test);
  summary.stepwise->evaluated_tokens = evaluator_.part().tokens;
  summary.stepwise->validation_tokens = evaluator_.part().split_tokens;
  summary.run = std::filesystem::absolute(run_.path()).lexically_normal().string();
  return summary;
}

}  // namespace metaformer
