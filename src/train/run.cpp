#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "attention/kernel_choice.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/text.h"
#include "config/experiment_config.h"
#include "config/writer.h"
#include "cuda/metric_attention.h"
#include "model/make_model.h"
#include "model/memory_estimate.h"
#include "ops/device.h"
#include "ops/linear.h"
#include "run/run_directory.h"
#include "tasks/calibration.h"
#include "tasks/make_task.h"
#include "text/make_tokenizer.h"
#include "train/initial_weights.h"
#include "train/linear_baseline.h"
#include "train/lora.h"
#include "train/optim/learning_rate.h"
#include "train/trainer.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

bool is_linear(const ExperimentConfig& config) { return is<LinearConfig>(config.model); }

std::string describe_memory(const MemoryEstimate& estimate) {
  return fmt::format(
      "training takes about {} of memory ({} for weights, gradients and optimiser state, {} for activations), and {} "
      "are available; lower train.batch_size (and raise train.accumulate), model.context or model.width",
      human_bytes(estimate.total()), human_bytes(estimate.state()), human_bytes(estimate.activations),
      human_bytes(machine_memory()));
}

// Throws if memory clearly does not suffice: otherwise the machine would swap until the process is killed.
void require_fits_in_memory(const MemoryEstimate& estimate) {
  if (clearly_exceeds(estimate, machine_memory()))
    throw Error(ExitCode::out_of_memory, describe_memory(estimate) + ", or train with --force");
}

// To be called when the data are known. Warns if memory may not suffice.
void check_memory(const ExperimentConfig& config, const Codec& codec, torch::Device device, bool force) {
  if (!device.is_cpu()) return;
  const auto estimate = estimate_memory(config, sizes_of(codec));
  if (!force) require_fits_in_memory(estimate);
  if (estimate.total() > machine_memory()) log::warning("{}", describe_memory(estimate));
}

// --resume or --from: the run whose state training continues.
struct EarlierRun {
  RunDirectory run;
  ExperimentConfig config;               // as it was trained last
  Json changes;                          // of the config since then: {"train.steps": {"was": 4, "is": 8}}
  std::unique_ptr<FileLock> lock;        // null with --from, which leaves the run as it is
  std::optional<Checkpoint> checkpoint;  // nothing: the run begins again
};

constexpr const char *tokenizer_path = "data.tokenizer.path", *initial_weights_path = "train.init_from",
                     *learning_rate_key = "train.learning_rate", *floor_key = "train.schedule.floor";

template <class... Values>
[[noreturn]] void refuse_resume(const RunDirectory& run, fmt::format_string<Values...> why, Values&&... values) {
  fail_usage("--resume {}: {}", run.path().string(), fmt::format(why, std::forward<Values>(values)...));
}

// The keys that differ, with both values. Throws if one of them must not change. Paths may change: require_moved_data
// checks the data, and the functions below the tokenizer and the initial weights.
Json require_same_experiment(const RunDirectory& run, const ExperimentConfig& before, const ExperimentConfig& now) {
  auto free = moved_data(before, now);
  for (const auto* name : {"steps", "epochs", "learning_rate", "schedule.floor", "eval_interval", "checkpoint_interval",
                           "log_interval", "diagnostics_interval", "keep_checkpoints", "patience", "init_from"})
    free.push_back(fmt::format("train.{}", name));
  free.emplace_back(tokenizer_path);
  const auto earlier = config_to_json(before);
  auto changes = Json::object();
  for (const auto& change : Json::diff(earlier, config_to_json(now))) {
    if (change.at("op") == "remove") continue;
    const auto path = change.at("path").get<std::string>();
    auto key = path.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    const auto was = earlier.value(Json::json_pointer(path), Json()), is = change.at("value");
    if (std::find(free.begin(), free.end(), key) == free.end())
      refuse_resume(
          run,
          "{} is {} now and was {}; only steps, epochs, the learning rate and its floor, intervals, patience, "
          "retention and the paths of the same data may change",
          key, json_text(is), json_text(was));
    changes[key] = {{"was", was}, {"is", is}};
  }
  return changes;
}

// Throws if a file that the training began with differs from the file at its new path.
void require_same_digest(const EarlierRun& earlier, const std::string& key, const PathText& path,
                         const std::string& found, const std::string& trained) {
  if (found == trained) return;
  refuse_resume(earlier.run, "{}={}: not what it was trained with: its SHA-256 is {} and was {}", key, path, found,
                trained);
}

void require_same_tokenizer(const EarlierRun& earlier, const ExperimentConfig& now) {
  const auto path_of = [](const ExperimentConfig& config) {
    const auto* data = data_of(config);
    const auto* pretrained = data == nullptr ? nullptr : std::get_if<PretrainedTokenizerOptions>(&data->tokenizer);
    return pretrained == nullptr ? PathText() : pretrained->path;
  };
  const auto digest = [](const Tokenizer& tokenizer) { return sha256(tokenizer.to_json().dump()); };
  const auto path = path_of(now);
  if (path == path_of(earlier.config)) return;
  require_same_digest(earlier, tokenizer_path, path, digest(*read_pretrained_tokenizer(path)),
                      earlier.checkpoint ? digest(*earlier.checkpoint->codec.tokenizer) : "not known");
}

void require_same_initial_weights(const EarlierRun& earlier, const ExperimentConfig& now) {
  const auto& path = now.train.init_from;
  if (path == earlier.config.train.init_from) return;
  constexpr std::uintmax_t largest = 1 << 26;
  const auto file = earlier.run.initial_weights_file();
  const auto trained =
      std::filesystem::exists(file) ? parse_json(read_file(file, largest, ExitCode::failure)) : nlohmann::json();
  const auto digest = json_member(trained, "sha256");
  require_same_digest(earlier, initial_weights_path, path.value_or(PathText("null")),
                      path ? read_initial_weights(with_seed(*path, now.train)).digest : "none",
                      digest.is_string() ? digest.get<std::string>() : "not known");
}

// Steps that are done cannot be undone, and a new run needs steps after the checkpoint with which it begins. A linear
// model has one step, whatever train.steps is.
void require_steps_left(const TrainRequest& request, const RunDirectory& run, const Progress& progress) {
  const auto& config = request.experiment.config;
  if (const auto steps = config.train.steps; steps < progress.step)
    refuse_resume(run, "{} is {}, and the run has done {} steps; give at least that many",
                  config.train.epochs ? "the number of steps by train.epochs" : "train.steps", steps, progress.step);
  if (request.from && (is_linear(config) || is_finished(config, progress)))
    fail_usage("--from {}: the training ends at step {}, so nothing is left to train; {}", request.from->name,
               progress.step,
               is_linear(config) ? "a linear model is fitted in one step" : "set train.steps to more, for example");
}

// The folder of the run whose state training continues; empty for a new run.
std::filesystem::path folder_to_continue(const TrainRequest& request) {
  if (request.from) return request.from->run;
  return request.resume && !RunDirectory::is_free(request.out) ? request.out : std::filesystem::path();
}

const char* option_of_folder(const TrainRequest& request) { return request.from ? "--from" : "--out"; }

// The run of folder_to_continue with the checkpoint of --from, or for --resume locked and repaired, with its newest
// checkpoint; nothing for a new run. Errors: exit code 2 if it cannot be continued with this config, in which only the
// keys of require_same_experiment may change; those of load_checkpoint.
std::optional<EarlierRun> find_earlier_run(const TrainRequest& request) {
  if (request.resume && request.out.empty())
    fail_usage("--resume needs the run to go on with: --resume RUN, or --out RUN");
  const auto folder = folder_to_continue(request);
  if (folder.empty()) return std::nullopt;
  const auto& config = request.experiment.config;
  auto run = RunDirectory::open(folder, option_of_folder(request));
  auto lock = request.from ? nullptr : std::make_unique<FileLock>(run.lock_file());
  const auto before = load_run_experiment(run.config_file()).config;
  EarlierRun earlier{.run = std::move(run), .config = before, .changes = {}, .lock = std::move(lock), .checkpoint = {}};
  earlier.changes = require_same_experiment(earlier.run, before, config);
  if (request.from) {
    earlier.checkpoint = load_checkpoint(earlier.run, request.from->name, WithOptimizer::yes, "--from");
  } else {
    earlier.run.remove_left_overs();
    repair_checkpoints(earlier.run);
    earlier.checkpoint = load_newest_checkpoint(earlier.run);
  }
  require_same_tokenizer(earlier, config);
  require_same_initial_weights(earlier, config);
  if (earlier.checkpoint && !config.train.epochs)
    require_steps_left(request, earlier.run, earlier.checkpoint->progress);
  return earlier;
}

// Errors: the data are not those that the run was trained on (exit code 2; 3 if their path has changed).
void require_same_data(const EarlierRun& earlier, const ExperimentConfig& config, const Task& task) {
  require_moved_data(earlier.run, config, moved_data(earlier.config, config), task.description);
  if (const auto difference = difference_of_data(earlier.run, task.description))
    refuse_resume(earlier.run, "the data are not those it was trained on, which its environment.json names{}{}",
                  difference->empty() ? "" : ": ", *difference);
}

// If the schedule has changed, logs how the learning rate continues: another number of steps stretches the schedule, so
// the rate may jump at this step.
void describe_schedule(const EarlierRun& earlier, const ExperimentConfig& now, const Progress& progress) {
  std::vector<std::string> changed;
  for (const auto* key : {"train.steps", "train.epochs", learning_rate_key, floor_key})
    if (const auto change = earlier.changes.find(key); change != earlier.changes.end())
      changed.push_back(
          fmt::format("{} was {} and is {}", key, json_text(change->at("was")), json_text(change->at("is"))));
  if (is_linear(now) || changed.empty()) return;
  const auto rate = [&](const ExperimentConfig& config, std::int64_t step) {
    return scheduled_rate(config.train, width_of(config.model), step) * rollback_factor(config.train, progress);
  };
  const auto next = progress.step, steps = now.train.steps;
  const double before = rate(earlier.config, next), here = rate(now, next);
  const auto course = fmt::format(
      "{}; the {} schedule continues at step {} with learning rate {:.3g}{} and ends at step {} with {:.3g}",
      fmt::join(changed, ", "), kind_of(now.train.schedule), next, here,
      here == before ? ", as before," : fmt::format(", where it was {:.3g} before,", before), steps,
      rate(now, steps - 1));
  const bool is_intended = here == before || earlier.changes.contains(learning_rate_key);
  is_intended ? log::write_info(course) : log::write_warning(course);
}

// The starting point of a training.
struct Beginning {
  std::optional<EarlierRun> earlier;      // only on the first process: the run to continue
  std::optional<Checkpoint> checkpoint;   // of that run
  std::optional<InitialWeights> initial;  // of a new run; with neither, weights are random

  // Tokenizer and labels that belong to the weights; empty if they are to be made from the data.
  Codec take_codec() {
    if (checkpoint) return std::move(checkpoint->codec);
    return initial ? Codec{.tokenizer = std::move(initial->codec.tokenizer), .labels = {}} : Codec{};
  }
};

// The summary of a finished run, such as a linear model after its only checkpoint. Nothing when its process died before
// it wrote a summary, or when the summary belongs to an earlier end.
std::optional<RunSummary> finished_summary(const EarlierRun& earlier, ExperimentConfig config) {
  if (!earlier.checkpoint) return std::nullopt;
  const auto& progress = earlier.checkpoint->progress;
  const auto& epochs = config.train.epochs;
  auto& steps = config.train.steps;
  if (!is_linear(config) && !epochs && !is_finished(config, progress)) return std::nullopt;
  auto summary = read_summary(earlier.run);
  if (!summary || summary->steps != progress.step) return std::nullopt;
  if (epochs) {  // the number of steps is not known before the data are read
    const bool was_last = epochs == earlier.config.train.epochs && !summary->stopped_early;
    steps = was_last ? progress.step : static_cast<std::int64_t>(most_steps);
    if (!is_finished(config, progress)) return std::nullopt;
  }
  log::info("{} is finished: step {} of {}{}", earlier.run.path().string(), progress.step,
            is_linear(config) || epochs ? progress.step : steps,
            summary->stopped_early
                ? fmt::format("; train.patience {} ended it, and a larger one continues it: --set train.patience=N",
                              config.train.patience)
                : "");
  log::info("validation loss {:.4f}, best loss {:.4f} at step {}", summary->val_loss, summary->best_val_loss,
            summary->best_step);
  return summary;
}

// The weights of train.init_from, for a new run.
std::optional<InitialWeights> find_initial_weights(Experiment& experiment) {
  const auto& path = experiment.config.train.init_from;
  if (!path) return std::nullopt;
  auto initial = read_initial_weights(with_seed(*path, experiment.config.train));
  const auto* data = data_of(initial.config);
  if ((data == nullptr) != (data_of(experiment.config) == nullptr))
    fail_usage("train.init_from: {}: was trained for task {}, whose tokens mean nothing to task {}", initial.source,
               kind_of(initial.config.task), kind_of(experiment.config.task));
  if (data != nullptr) take_tokenizer(experiment, data->tokenizer, initial.source);
  return initial;
}

// Opens the folder that the first process has created or found.
RunDirectory open_run(const std::string& folder, const ProcessGroup& group) {
  try {
    return RunDirectory::open(folder, "--out");
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("rank {} does not see the run of rank 0: {}; all need the same file system",
                                          group.rank(), error.what()));
  }
}

// Finds the run to continue, or the initial weights of a new run, the same on all processes. Returns the summary of a
// finished run; processes other than the first return an empty one.
std::optional<RunSummary> find_beginning(TrainRequest& request, Beginning& beginning) {
  auto& group = *request.group;
  const auto& config = request.experiment.config;
  if (group.is_first()) beginning.earlier = find_earlier_run(request);
  const auto finished =
      beginning.earlier && !request.from ? finished_summary(*beginning.earlier, config) : std::nullopt;
  if (of_first(group, finished ? "finished" : "") == "finished") return finished.value_or(RunSummary());
  if (beginning.earlier) beginning.checkpoint = std::move(beginning.earlier->checkpoint);
  const auto checkpoint = of_first(group, beginning.checkpoint ? beginning.checkpoint->folder.string() : "");
  if (!group.is_first() && !checkpoint.empty())
    beginning.checkpoint = load_checkpoint(open_run((request.from ? request.from->run : request.out).string(), group),
                                           checkpoint, WithOptimizer::yes);
  if (!beginning.checkpoint) beginning.initial = find_initial_weights(request.experiment);
  return std::nullopt;
}

// Checks the weights and the names of parameters of a new run on another model of the same shapes.
void check_parameters(const ExperimentConfig& config, const Codec& codec, const Beginning& beginning) {
  const auto& train = config.train;
  const bool names_parameters = !train.freeze.empty() || !train.rate_factors.empty();
  if (beginning.checkpoint || (!beginning.initial && !names_parameters)) return;
  const auto model = make_model(config, sizes_of(codec));
  const bool has_adapters = train.lora.rank > 0;
  if (beginning.initial) {
    const auto transfer = copy_initial_weights(*beginning.initial, config, codec, *model);
    if (has_adapters) require_adaptable(*model, train, transfer);
  }
  if (!names_parameters) return;
  auto all = specified_parameters(*model);
  ParameterBuffer parameters(has_adapters ? with_adapters(std::move(all), train) : all);
  set_layer_rates(parameters, train);
}

// Makes the task, and checks data, memory and parameters before the run's folder is created, so that an error leaves no
// empty run behind.
Task make_checked_task(const TrainRequest& request, Beginning& beginning, torch::Device device) {
  auto& group = *request.group;
  const auto& config = request.experiment.config;
  const auto& earlier = beginning.earlier;
  if (earlier) require_moved_files(earlier->run, config, moved_data(earlier->config, config));
  if (!group.is_first()) wait_for_all(group);  // the first one may download and prepare files for the others
  auto task = make_task(config, request.offline, beginning.take_codec());
  if (group.is_first()) wait_for_all(group);
  require_same(group, {{"data", without_paths(task.description)}});
  if (group.is_first()) task.check();
  task.batches->check_training();
  check_memory(config, *task.codec, device, request.force);
  check_parameters(config, *task.codec, beginning);
  if (earlier) require_same_data(*earlier, config, task);
  return task;
}

// Sets the number of steps of train.epochs: the fewest that see the training split so often. Errors (exit code 2): the
// task has no epochs, or the steps are too many.
void set_steps(ExperimentConfig& config, const Provenance& provenance, const Task& task) {
  const auto& epochs = config.train.epochs;
  if (!epochs) return;
  const auto found = provenance.find("train.epochs");
  const auto place = found == provenance.end() ? Location() : found->second;
  const double per_step = task.batches->epochs_per_step();
  if (per_step == 0)
    fail_at(place, "train.epochs: {} has no meaning {}: set train.steps in its place", *epochs,
            config.train.overfit_batch
                ? "with train.overfit_batch, which trains on one batch"
                : fmt::format("for task {}, whose training rows are drawn without end", kind_of(config.task)));
  constexpr double rounding = 1e-9;  // 3 / 0.1 is a little above 30
  const double steps = std::ceil(*epochs / per_step * (1 - rounding));
  if (steps > most_steps)
    fail_at(place, "train.epochs: {} are {:.3g} steps, and {:.3g} are the most", *epochs, steps, most_steps);
  config.train.steps = static_cast<std::int64_t>(steps);
}

// Logs the number of steps of train.epochs.
void describe_epochs(const TrainConfig& train) {
  if (!train.epochs) return;
  log::info("train.epochs {}: {} steps", *train.epochs, train.steps);
  if (const auto warmup = warmup_steps(train.schedule); train.steps <= warmup)
    log::warning(
        "train.epochs: {} steps are not more than train.schedule.warmup_steps {}: all of the training is warm-up",
        train.steps, warmup);
}

// Writes the config, the environment and the first lines of the log, before the first step.
void write_beginning(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
                     const Beginning& beginning) {
  const auto& [name, config, provenance] = request.experiment;
  const auto step = beginning.checkpoint ? beginning.checkpoint->progress.step : 0;
  run.remove_left_overs();
  log::add_file(run.log_file());
  write_file_atomically(run.config_file(), config_to_yaml(config));
  write_environment(run,
                    {.command = request.command_line,
                     .device = device,
                     .first_step = step,
                     .changes = beginning.earlier ? beginning.earlier->changes : Json::object()},
                    task.description);
  if (step > 0) link_latest(run.path());
  log::info("{}: {}", name, describe_model(config));
  log::info("data: {}{}", config.train.overfit_batch ? "only the first batch of: " : "", task.summary);
  log::info("device: {}, {} thread{}, {}", device_description(device), at::get_num_threads(),
            at::get_num_threads() == 1 ? "" : "s", to_string(config.train.precision));
  describe_epochs(config.train);
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  if (!device.is_cuda() || model == nullptr) return;
  const auto choice = describe_kernel_choice(*model, config.train.precision, is<ClassificationConfig>(config.task),
                                             cuda::metric_kernel_device() == cuda::MetricDevice::cuda);
  if (!choice.empty()) log::info("{}", choice);
}

// The folder of the run, which the first process creates or has found, and the lock, which it holds (null on the
// others).
std::pair<RunDirectory, std::unique_ptr<FileLock>> open_or_create(TrainRequest& request, Beginning& beginning,
                                                                  const Task& task, torch::Device device) {
  auto& group = *request.group;
  if (!group.is_first()) {
    auto run = open_run(of_first(group, ""), group);
    log::add_error_file(run.log_file(group.rank()));
    return {std::move(run), nullptr};
  }
  if (request.out.empty()) request.out = default_run_folder(request.experiment.name);
  auto& earlier = beginning.earlier;
  const bool resumes = earlier && !request.from;
  auto run = resumes ? std::move(earlier->run) : RunDirectory::create(request.out);
  auto lock = resumes ? std::move(earlier->lock) : std::make_unique<FileLock>(run.lock_file());
  if (request.from) begin_from_checkpoint(run, earlier->run, *beginning.checkpoint);
  write_beginning(run, request, task, device, beginning);
  of_first(group, run.path().string());
  return {std::move(run), std::move(lock)};
}

// Replaces the best checkpoint if it is missing, repairs the links, and logs the resume position.
void continue_from(Beginning& beginning, const RunDirectory& run, const Task& task, const ExperimentConfig& config) {
  auto& [folder, progress, model, optimizer, codec] = *beginning.checkpoint;
  require_best_checkpoint(run, *task.measures, progress);
  if (!beginning.earlier) return;  // not the first process
  repair_links(run.checkpoints(), progress, config.train.keep_checkpoints);
  log::info("going on from {}", folder.string());
  describe_schedule(*beginning.earlier, config, progress);
}

// Reports which parameters were copied from the initial weights, in the log and, with all names, in a file of the run.
void report(const InitialWeights& initial, const WeightTransfer& transfer, const RunDirectory& run,
            const ExperimentConfig& config) {
  log::info("weights from {}: {}", initial.source, transfer.str());
  if (const auto keys = differing_model_keys(config, initial.config); !keys.empty())
    log::warning("the weights of {} were trained in another model: {}", initial.source, fmt::join(keys, ", "));
  const Json json = {{"source", initial.source},        {"sha256", initial.digest},    {"taken", transfer.copied},
                     {"taken_in_part", transfer.parts}, {"new", transfer.initialised}, {"left", transfer.unused}};
  write_file_atomically(run.initial_weights_file(), json_text(json, 2) + "\n");
}

// Writes into the metrics that the learning rate is another one from this step on.
void record_rate_changes(Trainer& trainer, const Json& changes) {
  auto rates = Json::object();
  for (const auto* key : {learning_rate_key, floor_key})
    if (changes.contains(key)) rates[key] = changes.at(key);
  if (!rates.empty()) trainer.write_resume_line(rates);
}

RunSummary train_network(const TrainRequest& request, const RunDirectory& run, const Task& task, torch::Device device,
                         const Beginning& beginning) {
  const auto& config = request.experiment.config;
  const bool writes = request.group->is_first();
  Step step(config, task, device, *request.group);
  if (beginning.initial) {
    const auto transfer = copy_initial_weights(*beginning.initial, config, *task.codec, *step.model);
    step.start_from_model();
    if (writes) report(*beginning.initial, transfer, run, config);
  }
  if (const auto trained = describe_trained(*step.parameters); writes && !trained.empty()) log::info("{}", trained);
  Trainer trainer(run, task, step, beginning.checkpoint ? &*beginning.checkpoint : nullptr);
  if (writes && beginning.earlier && beginning.checkpoint) record_rate_changes(trainer, beginning.earlier->changes);
  const auto& part = trainer.evaluated();
  if (writes && !part.is_whole())
    log::info("evaluation{}: {} of {} tokens of the validation split (train.evaluation; whole: all of them)",
              is<RandomEvaluationConfig>(config.train.evaluation) ? " at the end" : "", part.tokens, part.split_tokens);
  if (request.profile && writes) trainer.profile();
  auto summary = trainer.run();
  if (!writes) return summary;
  const auto& times = *summary.stepwise;
  const auto bits = summary.validation->find("bits_per_byte");
  log::info("validation {}{}{}, best loss {:.4f} at step {}; {:.1f} ms a step, {} tokens/s",
            headline_of(task, *summary.validation), bits ? fmt::format(" ({:.4f} bits per byte)", *bits) : "",
            part.is_whole() ? "" : fmt::format(" ({} of {} tokens)", part.tokens, part.split_tokens),
            summary.best_val_loss, summary.best_step, times.ms_per_step, human_count(times.tokens_per_second));
  log::info("seconds: start-up {:.1f}, training {:.1f}, evaluation {:.1f}, checkpoints {:.1f}", times.startup_seconds,
            summary.train_seconds, times.evaluation_seconds, times.checkpoint_seconds);
  Scores accuracies;
  for (const auto& [split, evaluation] : {std::pair("validation", &summary.validation), {"test", &summary.test}})
    if (const auto accuracy = *evaluation ? (*evaluation)->find("accuracy") : std::nullopt)
      accuracies.emplace_back(split, *accuracy);
  auto comparison = compare_with_baselines(config, task.description, accuracies, request.offline);
  for (const auto& line : comparison.table) log::info("{}", line);
  summary.baselines = std::move(comparison.accuracies);
  return summary;
}

// Logs the fitted temperature of a classifier, and its effect on the test split.
void describe_calibration(const RunSummary& summary) {
  if (!summary.temperature) return;
  log::info("{}", describe_temperature(*summary.temperature));
  const auto error = summary.test ? summary.test->find("scaled_calibration_error") : std::nullopt;
  if (error && *summary.temperature != 1)
    log::info("without and with the temperature: test loss {:.4f} and {:.4f}, calibration error {:.4f} and {:.4f}",
              summary.test->at("loss"), summary.test->at("scaled_loss"), summary.test->at("calibration_error"), *error);
}

// Trains in the run's folder. After a stop, logs the command that continues the run.
RunSummary train_in(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
                    Beginning& beginning) {
  const auto& config = request.experiment.config;
  try {
    if (beginning.checkpoint) continue_from(beginning, run, task, config);
    return is_linear(config) ? train_linear(request.experiment, run, task, device)
                             : train_network(request, run, task, device, beginning);
  } catch (const Interrupted&) {
    if (request.group->is_first())
      log::info("go on with: metaformer train --resume {}{}", shell_word(run.path().string()), request.resume_options);
    throw;
  }
}

}  // namespace

torch::Device prepare_device(const ExperimentConfig& config, const std::string& name, bool force) {
  const auto device = select_device(name);
  // The data are not read yet, so this assumes the smallest possible vocabulary.
  if (device.is_cpu() && !force) require_fits_in_memory(estimate_memory(config, {.vocabulary = 1, .classes = 2}));
  const auto* model = blocks_of(config.model);
  if (model != nullptr && device.is_cpu() &&
      model->any_mixer([](const MixerConfig& mixer) { return backend_of(mixer) == Backend::fused; }))
    fail_usage("model.mixer.backend: 'fused' needs a CUDA device, and this runs on the CPU; set auto or composed");
  require_right_products();
  if (device.is_cuda())
    at::globalContext().setFloat32MatmulPrecision(config.train.precision == Precision::tf32 ? "high" : "highest");
  return device;
}

RunSummary train(TrainRequest request) {
  auto& group = *request.group;
  const auto& build = build_info();
  require_same(group, {{"version", fmt::format("{} {}", build.version, build.commit)},
                       {"config", config_to_json(request.experiment.config)},
                       {"resume", request.resume},
                       {"out", request.out.string()},
                       {"from", request.from ? (request.from->run / request.from->name).string() : ""}});
  if (const auto folder = folder_to_continue(request); request.experiment.config.train.init_from && !folder.empty()) {
    // A resumed run has the tokenizer of its initial weights.
    const auto before = load_run_experiment(RunDirectory::open(folder, option_of_folder(request)).config_file()).config;
    if (const auto* data = data_of(before)) take_tokenizer(request.experiment, data->tokenizer, folder.string());
  }
  const auto& config = request.experiment.config;
  if (is_linear(config) && group.size() > 1)
    fail_usage("model.kind linear is fitted by one process, not by {}", group.size());
  require_equal_pieces(config, group.size());
  Beginning beginning;
  if (auto finished = find_beginning(request, beginning)) return std::move(*finished);
  const auto device = prepare_device(config, request.device, request.force);
  const auto task = make_checked_task(request, beginning, device);
  set_steps(request.experiment.config, request.experiment.provenance, task);
  if (auto& earlier = beginning.earlier) {
    set_steps(earlier->config, {}, task);
    if (config.train.epochs && beginning.checkpoint)
      require_steps_left(request, earlier->run, beginning.checkpoint->progress);
  }
  throw_if_any_stopped(group);  // before there is anything to save
  const auto [run, lock] = open_or_create(request, beginning, task, device);
  auto summary = train_in(run, request, task, device, beginning);
  if (!group.is_first()) return summary;
  describe_calibration(summary);
  // Written once, when it is complete. If the process stops before, --resume writes it.
  write_summary(run, summary);
  log::info("{}", run.path().string());
  return summary;
}

}  // namespace metaformer
