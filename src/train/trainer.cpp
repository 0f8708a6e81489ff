#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "base/text.h"
#include "infer/beam_search.h"
#include "infer/sampling.h"
#include "ops/device.h"
#include "ops/named_tensors.h"
#include "tasks/calibration.h"
#include "train/optim/learning_rate.h"

namespace metaformer {

namespace {

constexpr std::chrono::seconds line_interval(5);  // between progress lines in train.log

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

using Clock = Trainer::Clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

using Json = nlohmann::ordered_json;

std::int64_t tokens_seen(const BatchStream& batches, std::int64_t step) {
  return std::llround(batches.tokens_per_step() * static_cast<double>(step));
}

std::optional<double> epochs_seen(const BatchStream& batches, std::int64_t step) {
  const double per_step = batches.epochs_per_step();
  return per_step > 0 ? std::optional(per_step * static_cast<double>(step)) : std::nullopt;
}

// The maximum number of tokens in an evaluation of the validation split; nothing: the whole split.
std::optional<std::int64_t> evaluated_tokens(const TrainConfig& train) {
  if (train.overfit_batch) return std::nullopt;
  if (const auto* limited = std::get_if<LimitedEvaluationConfig>(&train.evaluation)) return limited->tokens;
  if (const auto* random = std::get_if<RandomEvaluationConfig>(&train.evaluation)) return random->tokens;
  return std::nullopt;
}

// The error (exit code 4) when `what` is not finite. It also names the first tensor that is not finite, and a remedy.
Error divergence_error(const Step& step, const Progress& progress, const std::string& what) {
  auto& parameters = *step.parameters;
  std::string culprit;
  if (const auto* gradient = parameters.first_not_finite(parameters.gradients())) {
    culprit = fmt::format(", first in the gradient of {}", gradient->name);
  } else if (const auto* value = parameters.first_not_finite(parameters.values())) {
    culprit = fmt::format(", first in {}", value->name);
  }
  return Error(ExitCode::diverged,
               fmt::format("step {}: the {} is not finite{}; try a lower train.learning_rate ({} now). {}",
                           progress.step, what, culprit, step.learning_rate(),
                           progress.best ? fmt::format("The best checkpoint is step-{}", progress.best->step)
                                         : "No evaluation came before it"));
}

// Warns of spikes in the coming steps, and rejects their updates if the config says so. Empty if the config does not
// watch for spikes. Keeps references.
AcceptNorm spike_watch(const TrainConfig& config, Progress& progress) {
  if (config.divergence.spikes.threshold == 0) return {};
  return [&](double norm) {
    if (!is_spike(progress.spikes, norm, config.divergence.spikes.threshold)) return true;
    const bool skips = config.divergence.spikes.action == SpikeAction::skip;
    log::warning("step {}: the gradient norm {:.3g} is a spike (number {}){}", progress.step + 1, norm,
                 progress.spikes.count, skips ? "; its update is skipped" : "");
    return !skips;
  };
}

// The number of the step whose batches come next. After a rollback it is beyond train.steps, so that other batches are
// drawn.
std::int64_t batch_step(const Progress& progress) {
  constexpr std::int64_t far = std::int64_t{1} << 36;
  return progress.step + progress.rollbacks * far;
}

}  // namespace

bool is_spike(SpikeState& state, double norm, double threshold) {
  constexpr std::int64_t first_judged = 20;
  constexpr double memory = 0.98;           // about the last 50 steps
  constexpr double least_deviation = 0.05;  // norms that hardly vary must not make every change a spike
  if (threshold == 0 || !std::isfinite(norm) || norm <= 0) return false;
  const double value = std::log(norm), difference = value - state.mean;
  const double deviation = std::max(least_deviation, std::sqrt(state.variance));
  if (state.seen >= first_judged && difference > threshold * deviation) {
    ++state.count;
    return true;
  }
  // In the first steps this is the plain mean.
  const double weight = std::max(1 - memory, 1 / static_cast<double>(++state.seen));
  state.mean += weight * difference;
  state.variance = (1 - weight) * (state.variance + weight * difference * difference);
  return false;
}

double rollback_factor(const TrainConfig& config, const Progress& progress) {
  const auto* rollback = std::get_if<RollbackConfig>(&config.divergence.action);
  return rollback == nullptr ? 1 : std::pow(rollback->factor, static_cast<double>(progress.rollbacks));
}

void ProgressLine::add_losses(double sum, std::int64_t count) {
  constexpr double kept_per_step = 0.98;
  if (count == 0) return;
  const double kept = std::pow(kept_per_step, count);
  loss_sum_ = kept * loss_sum_ + (1 - kept) * sum / static_cast<double>(count);
  loss_weight_ = kept * loss_weight_ + (1 - kept);
}

void ProgressLine::add_evaluation(double seconds) {
  evaluation_seconds_ += seconds;
  ++evaluations_;
}

std::string ProgressLine::text(std::int64_t step, double learning_rate, double seconds_per_step) const {
  auto line = fmt::format("step {}/{}", step, config_.steps);
  if (loss_weight_ > 0) line += fmt::format("  loss {:.4f}", loss_sum_ / loss_weight_);
  line += fmt::format("  lr {:.2e}", learning_rate);
  if (skipped_steps_ > 0) line += fmt::format("  {} skipped", skipped_steps_);
  if (seconds_per_step <= 0) return line;
  const double per_evaluation = evaluations_ > 0 ? evaluation_seconds_ / static_cast<double>(evaluations_) : 0;
  const bool ends_with_another = step < config_.steps && config_.steps % config_.eval_interval != 0;
  const auto evaluations_left =
      config_.steps / config_.eval_interval - step / config_.eval_interval + (ends_with_another ? 1 : 0);
  const double left = seconds_per_step * static_cast<double>(config_.steps - step) +
                      per_evaluation * static_cast<double>(evaluations_left);
  return line +
         fmt::format("  {} tokens/s  ETA {}", human_count(tokens_per_step_ / seconds_per_step), human_duration(left));
}

void ProgressLine::show(std::int64_t step, double learning_rate, double seconds_per_step) {
  timer_.restart();
  show_progress(text(step, learning_rate, seconds_per_step));
  if (!log::stderr_is_terminal()) {
    recorded_step_ = step;
  } else if (record_timer_.has_run(line_interval)) {
    record(step, learning_rate, seconds_per_step);
  }
}

void ProgressLine::record(std::int64_t step, double learning_rate, double seconds_per_step) {
  if (loss_weight_ == 0 || step == recorded_step_) return;
  recorded_step_ = step;
  record_timer_.restart();
  log::record(text(step, learning_rate, seconds_per_step));
}

std::string describe_model(const ExperimentConfig& config) {
  const auto describe = [&](const auto& model) -> std::string {
    using Model = std::decay_t<decltype(model)>;
    if constexpr (std::same_as<Model, LinearConfig>) {
      return fmt::format("linear, 1- to {}-grams in {} buckets", model.ngrams, model.buckets);
    } else {
      const auto sizes = fmt::format("width {}, context {}", model.width, model.context);
      if constexpr (std::same_as<Model, FeedForwardModelConfig>) {
        return fmt::format("feed_forward, window {}, width {}, {} hidden units, context {}", model.window, model.width,
                           model.hidden, model.context);
      } else if constexpr (std::same_as<Model, TransformerConfig>) {
        if (model.layers == 0) return "no blocks, " + sizes;
        return fmt::format("{} {}, {}, {}, {}", model.mixers.empty() ? "mixer" : "mixers", model.mixer_names(),
                           counted(model.layers, "layer"), counted(model.heads, "head"), sizes);
      } else if constexpr (std::same_as<Model, EncoderDecoderConfig>) {
        const auto blocks = model.encoder_blocks();
        return fmt::format("encoder of mixer {} and {}, decoder of {} and {} that sees it by {}, {}, {}",
                           blocks.mixer_names(), counted(blocks.layers, "layer"), model.mixer_names(),
                           counted(model.layers, "layer"), kind_of(model.cross_mixer), counted(model.heads, "head"),
                           sizes);
      } else {
        return fmt::format("{}, {}, {}{}", model.kind, counted(model.layers, "layer"), sizes,
                           model.carry_state ? ", the state is carried" : "");
      }
    }
  };
  return std::visit(describe, config.model);
}

// Whether the accuracy of the last evaluation has reached task.enough.
static bool is_enough(const TaskConfig& task, const Progress& progress) {
  const auto* rows = recall_rows(task);
  return rows != nullptr && rows->enough > 0 && progress.validation &&
         progress.validation->find("accuracy").value_or(0) >= rows->enough;
}

bool is_finished(const ExperimentConfig& config, const Progress& progress) {
  const auto& [task, model, train] = config;
  return progress.step >= train.steps || is_enough(task, progress) ||
         (train.patience > 0 && progress.evaluations_since_best >= train.patience);
}

bool Trainer::is_at(std::int64_t interval) const {
  return progress_.step % interval == 0 || is_finished(config_, progress_);
}

bool Trainer::lacks_evaluation() const {
  return progress_.step > 0 && is_at(config_.train.eval_interval) && !is_evaluated(progress_);
}

bool Trainer::is_checkpoint_due() const {
  const bool is_best = progress_.best && progress_.best->step == progress_.step;
  return !lacks_evaluation() && (is_best || is_at(config_.train.checkpoint_interval));
}

Trainer::Trainer(const RunDirectory& run, const Task& task, Step& step, const Checkpoint* checkpoint)
    : run_(run),
      task_(task),
      step_(step),
      config_(step.config()),
      group_(step.group()),
      predictor_(*step.model),
      scoring_{predictor_, task, config_.train.precision, step.device(), group_},
      part_(part_of_split(*task.batches, Split::validation, evaluated_tokens(config_.train), predictor_.remembers())),
      line_(config_.train, task.batches->tokens_per_step()),
      diagnostics_(config_, task, *step.model, step.device()),
      attention_watch_(config_, diagnostics_) {
  if (is<RollbackConfig>(config_.train.divergence.action)) initial_values_ = step.parameters->values().clone();
  if (checkpoint != nullptr) {
    step.restore(*checkpoint);
    progress_ = checkpoint->progress;
  } else {
    task.before_training(*step.model);
  }
  progress_.startup_seconds += seconds_since_program_start();
  first_step_ = progress_.step;
  earlier_wall_seconds_ = progress_.wall_seconds;
  start_ = Clock::now();
  open_metrics(progress_.rollbacks);
}

double Trainer::wall_seconds() const { return earlier_wall_seconds_ + seconds_since(start_); }

double Trainer::seconds_per_step() const {
  const auto timed_steps = progress_.step - first_step_ - 1;
  return timed_steps > 0 ? session_seconds_ / static_cast<double>(timed_steps) : 0;
}

void Trainer::count_training(Clock::time_point start) {
  const double seconds = seconds_since(start);
  if (progress_.step > first_step_ + 1) session_seconds_ += seconds;
  progress_.train_seconds += seconds;
}

// With random evaluation, only the end of a training writes lines of split validation.
void Trainer::open_metrics(std::int64_t rollbacks) {
  const bool estimates = is<RandomEvaluationConfig>(config_.train.evaluation);
  const LogPosition position{.step = progress_.step,
                             .evaluated = is_evaluated(progress_),
                             .rollbacks = rollbacks,
                             .past_end = estimates && !is_finished(config_, progress_)};
  metrics_ = group_.is_first() ? std::make_unique<MetricsLog>(run_, position) : std::make_unique<MetricsLog>();
  metrics_->write_config(config_);
}

void Trainer::profile() { profiler_ = std::make_unique<StepProfiler>(run_.profile_file(), step_.device()); }

RunSummary Trainer::run() {
  const auto& train = config_.train;
  if (group_.is_first()) set_stop_notice("stopping after this step; again to quit");
  // Several processes stop together.
  std::optional<StopDeferral> until_all_stop;
  if (group_.size() > 1) until_all_stop.emplace();
  write_sample();  // if an earlier process was stopped before it
  while (lacks_evaluation() || !is_finished(config_, progress_)) {
    try {
      if (!lacks_evaluation()) {
        advance();
        continue;
      }
      evaluate_and_save();  // if an earlier process was stopped before it; its checkpoint is replaced
      if (!is_checkpoint_due()) save();
    } catch (const Error& error) {
      if (!roll_back(error)) throw;
    }
  }
  if (profiler_) profiler_->finish();
  if (progress_.step < train.steps && is_enough(config_.task, progress_))
    log::info("step {}: the validation accuracy reached task.enough; training ends early", progress_.step);
  else if (progress_.step < train.steps)
    log::info("step {}: {} evaluations without a better validation result (train.patience {}); training ends early",
              progress_.step, progress_.evaluations_since_best, train.patience);
  return summary();
}

void Trainer::advance() {
  if (profiler_) profiler_->before_step(progress_.step - first_step_);
  train_step();
  if (profiler_) profiler_->after_step();
  if (line_.is_due()) {
    if (group_.size() == 1) read_losses();  // several processes read at the same steps, to detect divergence together
    line_.show(progress_.step, step_.learning_rate(), seconds_per_step());
  }
  if (is_at(config_.train.log_interval)) write_training_line();
  write_sample();
  evaluate_and_save();
}

void Trainer::train_step() {
  const auto interval = config_.train.diagnostics_interval;
  const bool diagnoses = interval > 0 && (progress_.step + 1) % interval == 0;
  const auto before = diagnoses ? step_.parameters->values().clone() : torch::Tensor();
  const auto start = Clock::now();
  pending_.push_back(run_step());
  ++progress_.step;
  progress_.temperature.reset();
  step_.average->update(progress_.step);
  if (step_.device().is_cpu()) read_losses();  // costs nothing there, and detects divergence at its step
  count_training(start);
  if (diagnoses) return write_diagnostics(before);
  if (!is_look_due(progress_.step, config_.train.steps)) return;
  read_losses();  // all processes read at the same steps; attention needs finite weights
  if (group_.is_first()) attention_watch_.look(progress_);
}

StepResult Trainer::run_step() {
  try {
    const double rate = scheduled_rate(config_.train, width_of(config_.model), progress_.step);
    return step_.run(batch_step(progress_), rate * rollback_factor(config_.train, progress_),
                     spike_watch(config_.train, progress_));
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw Error(ExitCode::out_of_memory,
                fmt::format("step {}: out of memory with {} sequences of up to {} tokens at once ({}): {}; lower "
                            "train.batch_size (and raise train.accumulate), model.context or model.width",
                            progress_.step + 1, config_.train.batch_size, context_of(config_.model),
                            describe_model(config_), describe_out_of_memory(error)));
  }
}

void Trainer::read_losses() {
  if (pending_.empty()) return;
  const auto start = Clock::now();
  const auto results = std::exchange(pending_, {});
  const auto on_host = [&](torch::Tensor StepResult::*field, torch::ScalarType type) {
    std::vector<torch::Tensor> scalars;
    for (const auto& result : results) scalars.push_back(result.*field);
    return torch::stack(scalars).to(torch::kCPU, type);
  };
  const bool has_scale = results.front().skipped.defined();
  const auto loss_n = on_host(&StepResult::loss, torch::kDouble);
  const auto norm_n = on_host(&StepResult::gradient_norm, results.front().gradient_norm.scalar_type());
  const auto clipped_n = norm_n > config_.train.clip;
  const auto skipped_n = has_scale ? on_host(&StepResult::skipped, torch::kBool) : torch::zeros_like(clipped_n);
  double loss = 0;
  std::int64_t steps = 0, clipped = 0;  // without skipped steps
  for (std::int64_t i = 0; i < std::ssize(results); ++i) {
    if (skipped_n[i].item<bool>()) continue;
    ++steps;
    loss += loss_n[i].item<double>();
    if (config_.train.clip > 0 && clipped_n[i].item<bool>()) ++clipped;
  }
  progress_.loss_sum += loss;
  progress_.loss_count += steps;
  progress_.skipped_steps += std::ssize(results) - steps;
  progress_.clipped_count += clipped;
  progress_.clipped_steps += clipped;
  last_norm_ = norm_n[-1].item<double>();
  if (!step_.device().is_cpu()) count_training(start);  // the host has waited for steps that it had only started
  if (!std::isfinite(progress_.loss_sum)) throw divergence_error(step_, progress_, "training loss");
  if (has_scale && on_host(&StepResult::exhausted, torch::kBool).any().item<bool>())
    throw divergence_error(step_, progress_, "gradient norm, even with a loss scale of 1,");
  if (!std::isfinite(last_norm_) && !skipped_n[-1].item<bool>())
    throw divergence_error(step_, progress_, "gradient norm");
  line_.add_losses(loss, steps);
  line_.set_skipped_steps(progress_.skipped_steps);
}

void Trainer::write_training_line() {
  read_losses();
  if (progress_.loss_count == 0) return;
  const auto steps = static_cast<double>(progress_.loss_count);
  progress_.last_train_loss = progress_.loss_sum / steps;
  Json line = {{"loss", progress_.last_train_loss},
               {"learning_rate", step_.learning_rate()},
               {"gradient_norm", last_norm_},
               {"clipped_fraction", static_cast<double>(progress_.clipped_count) / steps},
               {"tokens", tokens_seen(*task_.batches, progress_.step)}};
  if (const auto epochs = epochs_seen(*task_.batches, progress_.step)) line["epoch"] = *epochs;
  line.update({{"seconds", progress_.train_seconds},
               {"wall_seconds", wall_seconds()},
               {"evaluation_seconds", progress_.evaluation_seconds},
               {"peak_memory_bytes", peak_memory_bytes(step_.device())},
               {"rollbacks", progress_.rollbacks},
               {"spikes", progress_.spikes.count},
               {"skipped_steps", progress_.skipped_steps}});
  metrics_->write(progress_.step, "train", line);
  progress_.loss_sum = 0;
  progress_.loss_count = progress_.clipped_count = 0;
}

void Trainer::write_diagnostics(const torch::Tensor& before) {
  read_losses();  // throws if values are not finite: they have no spectrum
  if (!group_.is_first()) return;
  auto groups = diagnose_step(*step_.model, *step_.parameters, before, last_norm_);
  const auto stacks = diagnostics_.measure(StreamDiagnostics::Gradients::of_stream);
  add_to_json(stacks, groups);
  metrics_->write(progress_.step, "diagnostics", groups);
  attention_watch_.note(attention_entropies(stacks), progress_);
}

// If a process ended between a step and its sample, the sample is still due.
void Trainer::write_sample() {
  const auto* task = std::get_if<LanguageModelConfig>(&config_.task);
  const auto interval = task == nullptr ? 0 : task->sample_interval, step = progress_.step;
  if (interval == 0 || step == 0 || step % interval != 0) return;
  read_losses();  // throws if values are not finite: they generate no text
  if (!group_.is_first() || metrics_->last_sampled_step() == step) return;
  const WeightAverage::Use average(*step_.average);
  const auto sample = metaformer::write_sample(*step_.model, *task_.codec->tokenizer, step_.device(),
                                               static_cast<std::uint64_t>(config_.train.seed), step);
  if (!sample) return;
  metrics_->write_sample(step, {{"prompt", sample->prompt},
                                {"text", sample->text},
                                {"tokens", sample->tokens},
                                {"temperature", sample->options.temperature},
                                {"top_k", sample->options.top_k},
                                {"seed", sample->options.seed}});
  log_sample(step, sample->text);
}

// If a stop signal interrupts the evaluation, the progress stays not evaluated, and the time still counts.
void Trainer::evaluate() {
  read_losses();
  line_.record(progress_.step, step_.learning_rate(), seconds_per_step());
  const auto count_time = [&, start = Clock::now()] {
    const double seconds = seconds_since(start);
    progress_.evaluation_seconds += seconds;
    line_.add_evaluation(seconds);
  };
  try {
    const WeightAverage::Use average(*step_.average);
    progress_ = evaluated_progress();
  } catch (...) {
    count_time();
    throw;
  }
  count_time();
}

void Trainer::adapt() {
  if (adapted_step_ == progress_.step) return;
  task_.before_evaluation(*step_.model, step_.device());
  adapted_step_ = progress_.step;
}

// With random evaluation, the best checkpoint is chosen by estimates only; the evaluation of the split at the end of
// training is only reported.
Progress Trainer::evaluated_progress() {
  adapt();
  const auto* random = std::get_if<RandomEvaluationConfig>(&config_.train.evaluation);
  auto after = progress_;
  const auto written = [&](const std::string& name, Split split, const ScoreSums& sums) {
    auto report = report_of(task_, split, sums);
    metrics_->write(progress_.step, name, json_of(report));
    if (split == Split::validation && !config_.train.overfit_batch) after.temperature = fit_temperature(task_, sums);
    return report;
  };
  ScoreSums sums;  // of the part
  const auto evaluate_part = [&] {
    sums = score_part(scoring_, Split::validation, part_);
    return written("validation", Split::validation, sums);
  };
  const auto estimate = [&](Split split) {
    return written(fmt::format("{}_estimate", to_string(split)), split,
                   score_random_batches(scoring_, split, random->batches));
  };
  if (random != nullptr) estimate(Split::train);
  after.validation = random != nullptr ? estimate(Split::validation) : evaluate_part();
  const double loss = after.validation->at("loss");
  if (!std::isfinite(loss)) throw divergence_error(step_, progress_, "validation loss");
  const double error = task_.measures->selection_error(*after.validation);
  const bool improved = !after.best || error < after.best->error;
  after.evaluations_since_best = improved ? 0 : after.evaluations_since_best + 1;
  if (improved) after.best = BestSoFar{after.step, loss, error};
  after.evaluated_step = after.step;
  if (is_finished(config_, after)) {
    if (random != nullptr) after.validation = evaluate_part();
    if (group_.is_first()) write_confusion(run_, task_, Split::validation, sums);
  }
  log::info("step {}: validation {}{}", after.step, headline_of(task_, *after.validation), improved ? " (best)" : "");
  return after;
}

std::optional<double> Trainer::temperature_of_best() const {
  const auto step = progress_.best->step;
  if (task_.classes == nullptr || step == progress_.step) return progress_.temperature;
  std::optional<double> temperature;
  damage_of([&] { temperature = read_meta_of(run_.checkpoints() / step_name(step)).progress.temperature; });
  return temperature;
}

void Trainer::load_best() {
  const auto step = progress_.best->step;
  if (step == progress_.step) return;
  const auto best = load_checkpoint(run_, step_name(step), WithOptimizer::no);
  copy_by_name(best.model, named_state(*step_.model), (best.folder / "model.safetensors").string());
}

Evaluation Trainer::test() {
  const auto step = progress_.best->step;
  if (const auto usual = evaluated_tokens(config_.train)) {  // the test split is evaluated as a whole, however large
    const auto tokens = part_of_split(*task_.batches, Split::test, std::nullopt, /*in_order=*/false).tokens;
    if (tokens > *usual) log::info("evaluating all {} tokens of the test split", tokens);
  }
  auto [report, tables] = report_test(scoring_, config_.train, run_, temperature_of_best());
  if (task_.pairs != nullptr && !config_.train.overfit_batch)
    report.written =
        score_written_targets(*step_.model, config_, step_.device(), *task_.pairs, Split::test, {}, group_);
  metrics_->write(step, "test", json_of(report));
  log::info("test, step {}: {}", step, headline_of(task_, report));
  for (const auto& line : tables) log::info("  {}", line);
  return report;
}

void Trainer::evaluate_and_save() {
  try {
    if (lacks_evaluation()) evaluate();
    throw_if_any_stopped(group_);
  } catch (const Interrupted&) {
    save();
    log::info("stopped at step {}", progress_.step);
    throw;
  }
  const bool asked = take_save_request_of_any(group_);
  if (asked || is_checkpoint_due()) save();
  if (asked) log::info("saved at step {}, as SIGUSR1 asked", progress_.step);
}

void Trainer::save() {
  read_losses();
  progress_.wall_seconds = wall_seconds();
  progress_.scheduled = is_checkpoint_due();
  const auto start = Clock::now();
  const auto& values = step_.parameters->values();
  if (step_.parameters->first_not_finite(values)) throw divergence_error(step_, progress_, "state");
  if (const auto name = step_.optimizer->first_not_finite(); !name.empty())
    throw divergence_error(step_, progress_, fmt::format("optimiser's {}", name));
  if (group_.size() > 1) {
    // All processes begin with the same weights and make the same updates. A difference reveals a machine that computes
    // wrongly.
    const auto on_host = values.cpu();
    const auto digests =
        group_.gather(sha256({reinterpret_cast<const char*>(on_host.const_data_ptr()), on_host.nbytes()}));
    for (std::size_t rank = 1; rank < digests.size(); ++rank)
      if (digests[rank] != digests.front())
        throw Error(ExitCode::process_lost,
                    fmt::format("the weights of rank {} differ from those of rank 0; nothing is saved", rank));
  }
  {
    const WeightAverage::Use average(*step_.average);
    adapt();
    const auto state = step_.state();
    if (group_.is_first()) {
      metrics_->sync();
      save_checkpoint(run_, progress_, named_state(*step_.model), state, *task_.codec, config_.train.keep_checkpoints);
      if (!std::exchange(is_linked_, true)) link_latest(run_.path());
    }
  }
  progress_.checkpoint_seconds += seconds_since(start);
}

void Trainer::go_back() {
  if (const auto checkpoint = load_rollback_checkpoint(run_, progress_)) {
    step_.restore(*checkpoint);
    step_.memory->reset();  // other batches follow, which continue no earlier ones
    progress_ = checkpoint->progress;
  } else {
    step_.restart(initial_values_);
    progress_ = {};
  }
  require_best_checkpoint(run_, *task_.measures, progress_);
}

bool Trainer::roll_back(const Error& error) {
  const auto* action = std::get_if<RollbackConfig>(&config_.train.divergence.action);
  if (error.code() != ExitCode::diverged || action == nullptr) return false;
  const auto failed_step = progress_.step, earlier_rollbacks = progress_.rollbacks;
  if (earlier_rollbacks + 1 > action->limit) {
    log::warning("giving up after {} rollbacks (train.divergence.action.limit)", action->limit);
    return false;
  }
  go_back();
  progress_.rollbacks = earlier_rollbacks + 1;
  progress_.rollback_step = progress_.step;
  log::warning("{}", error.what());
  log::warning("rollback {} of {}: back to step {}, with other batches and {} times the learning rate",
               progress_.rollbacks, action->limit, progress_.step, rollback_factor(config_.train, progress_));
  pending_.clear();
  adapted_step_ = -1;  // the weights have been replaced
  open_metrics(earlier_rollbacks);
  metrics_->write(progress_.step, "rollback", {{"failed_step", failed_step}, {"rollbacks", progress_.rollbacks}});
  return true;
}

RunSummary Trainer::summary() {
  const WeightAverage::Use average(*step_.average);
  auto summary = summary_of(run_, progress_);
  if (group_.is_first()) summary.temperature = temperature_of_best();
  const bool has_test = task_.batches->has(Split::test), predicts = task_.classes != nullptr && part_.is_whole();
  if (predicts || has_test) load_best();
  if (predicts) {
    const auto sums = score_split(scoring_, Split::validation);
    if (group_.is_first()) write_predictions(run_, config_.train, task_, Split::validation, sums);
  }
  if (has_test) summary.test = test();
  const auto counts = count_parameters(*step_.model);
  const double ms_per_step = seconds_per_step() * 1e3;
  summary.stopped_early = progress_.step < config_.train.steps;
  summary.parameters = counts.all;
  summary.mixer_parameters = counts.mixers;
  summary.peak_memory_bytes = peak_memory_bytes(step_.device());
  summary.stepwise = {
      .ms_per_step = ms_per_step,
      .tokens_per_second = ms_per_step > 0 ? task_.batches->tokens_per_step() / ms_per_step * 1e3 : 0,
      .costs = costs_of(config_, task_.codec->tokenizer->vocabulary_size()),
      .bytes_per_token = task_.bytes_per_token,
      .rollbacks = progress_.rollbacks,
      .spikes = progress_.spikes.count,
      .skipped_steps = progress_.skipped_steps,
      .seed = config_.train.seed,
      .tokens = tokens_seen(*task_.batches, progress_.step),
      .epochs = epochs_seen(*task_.batches, progress_.step),
      .clipped_fraction = static_cast<double>(progress_.clipped_steps) / static_cast<double>(progress_.step),
      .evaluated_tokens = part_.tokens,
      .validation_tokens = part_.split_tokens,
      .startup_seconds = progress_.startup_seconds,
      .evaluation_seconds = progress_.evaluation_seconds,
      .checkpoint_seconds = progress_.checkpoint_seconds,
      .wall_seconds = wall_seconds()};
  return summary;
}

}  // namespace metaformer
