#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "tasks/make_task.h"
#include "text/make_tokenizer.h"
#include "train/initial_weights.h"
#include "train/linear_baseline.h"
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

// --resume: the run to resume.
struct EarlierRun {
  RunDirectory run;
  ExperimentConfig config;  // as it was trained last
  std::unique_ptr<FileLock> lock;
  std::optional<Checkpoint> checkpoint;  // nothing: the run begins again
};

constexpr const char *tokenizer_path = "data.tokenizer.path", *initial_weights_path = "train.init_from";

template <class... Values>
[[noreturn]] void refuse_resume(const RunDirectory& run, fmt::format_string<Values...> why, Values&&... values) {
  fail_usage("--resume {}: {}", run.path().string(), fmt::format(why, std::forward<Values>(values)...));
}

// Throws if a key differs that must not change. Paths may change: require_moved_data checks the data, and the functions
// below the tokenizer and the initial weights.
void require_same_experiment(const RunDirectory& run, const ExperimentConfig& before, const ExperimentConfig& now) {
  auto free = moved_data(before, now);
  for (const auto* name : {"steps", "eval_interval", "checkpoint_interval", "log_interval", "diagnostics_interval",
                           "keep_checkpoints", "patience", "init_from"})
    free.push_back(fmt::format("train.{}", name));
  free.emplace_back(tokenizer_path);
  const auto earlier = config_to_json(before);
  for (const auto& change : Json::diff(earlier, config_to_json(now))) {
    const auto path = change.at("path").get<std::string>();
    auto key = path.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    if (change.at("op") == "remove" || std::find(free.begin(), free.end(), key) != free.end()) continue;
    refuse_resume(run,
                  "{} is {} now and was {}; only steps, intervals, patience, retention and the paths "
                  "of the same data may change",
                  key, json_text(change.at("value")), json_text(earlier.value(Json::json_pointer(path), Json())));
  }
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

// The run in `out`, locked and repaired, with its newest checkpoint; nothing for a new run. Errors: exit code 2 if it
// cannot be resumed with this config, which may change only steps, intervals, patience, retention and the paths of
// data, tokenizer and initial weights; those of load_newest_checkpoint.
std::optional<EarlierRun> find_earlier_run(const ExperimentConfig& config, const std::filesystem::path& out,
                                           bool resume) {
  if (resume && out.empty()) fail_usage("--resume needs --out: the run to go on with");
  if (!resume || RunDirectory::is_free(out)) return std::nullopt;
  EarlierRun earlier{.run = RunDirectory::open(out, "--out"), .config = {}, .lock = {}, .checkpoint = {}};
  earlier.lock = std::make_unique<FileLock>(earlier.run.lock_file());
  earlier.config = load_run_experiment(earlier.run.config_file()).config;
  require_same_experiment(earlier.run, earlier.config, config);
  earlier.run.remove_left_overs();
  repair_checkpoints(earlier.run);
  earlier.checkpoint = load_newest_checkpoint(earlier.run);
  require_same_tokenizer(earlier, config);
  require_same_initial_weights(earlier, config);
  // Steps that are done cannot be undone. A linear model has one step, whatever train.steps is.
  if (const auto done = earlier.checkpoint ? earlier.checkpoint->progress.step : 0; config.train.steps < done)
    refuse_resume(earlier.run, "train.steps is {}, and the run has done {} steps; give at least that many",
                  config.train.steps, done);
  return earlier;
}

// Errors: the data are not those that the run was trained on (exit code 2; 3 if their path has changed).
void require_same_data(const EarlierRun& earlier, const ExperimentConfig& config, const Task& task) {
  require_moved_data(earlier.run, config, moved_data(earlier.config, config), task.description);
  if (const auto difference = difference_of_data(earlier.run, task.description))
    refuse_resume(earlier.run, "the data are not those it was trained on, which its environment.json names{}{}",
                  difference->empty() ? "" : ": ", *difference);
}

// If the number of steps has changed, logs how the learning rate continues: another number stretches the schedule, so
// the rate may jump at this step.
void describe_schedule(const ExperimentConfig& before, const ExperimentConfig& now, const Progress& progress) {
  const auto steps_before = before.train.steps, steps = now.train.steps;
  if (is<LinearConfig>(now.model) || steps_before == steps) return;
  const auto rate = [&](const ExperimentConfig& config, std::int64_t step) {
    return scheduled_rate(config.train, width_of(config.model), step) * rollback_factor(config.train, progress);
  };
  const auto next = progress.step;
  const double earlier = rate(before, next), here = rate(now, next);
  const auto course = fmt::format(
      "train.steps was {} and is {}; the {} schedule continues at step {} with learning rate {:.3g}{} and ends at step "
      "{} with {:.3g}",
      steps_before, steps, kind_of(now.train.schedule), next, here,
      here == earlier ? ", as before," : fmt::format(", where it was {:.3g} before,", earlier), steps,
      rate(now, steps - 1));
  here == earlier ? log::write_info(course) : log::write_warning(course);
}

// The starting point of a training.
struct Beginning {
  std::optional<EarlierRun> earlier;      // only on the first process: the run to resume
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
std::optional<RunSummary> finished_summary(const EarlierRun& earlier, const ExperimentConfig& config) {
  if (!earlier.checkpoint) return std::nullopt;
  const auto& progress = earlier.checkpoint->progress;
  if (!is_linear(config) && !is_finished(config, progress)) return std::nullopt;
  auto summary = read_summary(earlier.run);
  if (!summary || summary->steps != progress.step) return std::nullopt;
  log::info("{} is finished: step {} of {}", earlier.run.path().string(), progress.step,
            is_linear(config) ? progress.step : config.train.steps);
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

// Finds the run to resume, or the initial weights of a new run, the same on all processes. Returns the summary of a
// finished run; processes other than the first return an empty one.
std::optional<RunSummary> find_beginning(TrainRequest& request, Beginning& beginning) {
  auto& group = *request.group;
  const auto& config = request.experiment.config;
  if (group.is_first()) beginning.earlier = find_earlier_run(config, request.out, request.resume);
  const auto finished = beginning.earlier ? finished_summary(*beginning.earlier, config) : std::nullopt;
  if (of_first(group, finished ? "finished" : "") == "finished") return finished.value_or(RunSummary());
  if (beginning.earlier) beginning.checkpoint = std::move(beginning.earlier->checkpoint);
  const auto checkpoint = of_first(group, beginning.checkpoint ? beginning.checkpoint->folder.string() : "");
  if (!group.is_first() && !checkpoint.empty())
    beginning.checkpoint = load_checkpoint(open_run(request.out.string(), group), checkpoint, WithOptimizer::yes);
  if (!beginning.checkpoint) beginning.initial = find_initial_weights(request.experiment);
  return std::nullopt;
}

// Makes the task, and checks data, memory and weights before the run's folder is created, so that an error leaves no
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
  if (beginning.initial)  // checked on another model of the same shapes
    copy_initial_weights(*beginning.initial, config, *task.codec, *make_model(config, sizes_of(*task.codec)));
  if (earlier) require_same_data(*earlier, config, task);
  return task;
}

// Writes the config, the environment and the first lines of the log, before the first step.
void write_beginning(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
                     std::int64_t step) {
  const auto& [name, config, provenance] = request.experiment;
  run.remove_left_overs();
  log::add_file(run.log_file());
  write_file_atomically(run.config_file(), config_to_yaml(config));
  write_environment(run, {request.command_line, device, step}, task.description);
  if (step > 0) link_latest(run.path());
  log::info("{}: {}", name, describe_model(config));
  log::info("data: {}{}", config.train.overfit_batch ? "only the first batch of: " : "", task.summary);
  log::info("device: {}, {} thread{}, {}", device_description(device), at::get_num_threads(),
            at::get_num_threads() == 1 ? "" : "s", to_string(config.train.precision));
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
  auto run = earlier ? std::move(earlier->run) : RunDirectory::create(request.out);
  auto lock = earlier ? std::move(earlier->lock) : std::make_unique<FileLock>(run.lock_file());
  write_beginning(run, request, task, device, beginning.checkpoint ? beginning.checkpoint->progress.step : 0);
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
  describe_schedule(beginning.earlier->config, config, progress);
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

RunSummary train_network(const TrainRequest& request, const RunDirectory& run, const Task& task, torch::Device device,
                         const Beginning& beginning) {
  const auto& config = request.experiment.config;
  const bool writes = request.group->is_first();
  Step step(config, task, device, *request.group);
  if (beginning.initial) {
    const auto transfer = copy_initial_weights(*beginning.initial, config, *task.codec, *step.model);
    step.average->reset();
    if (writes) report(*beginning.initial, transfer, run, config);
  }
  Trainer trainer(run, task, step, beginning.checkpoint ? &*beginning.checkpoint : nullptr);
  const auto& part = trainer.evaluated();
  if (writes && !part.is_whole())
    log::info("evaluation{}: {} of {} tokens of the validation split (train.evaluation; whole: all of them)",
              is<RandomEvaluationConfig>(config.train.evaluation) ? " at the end" : "", part.tokens, part.split_tokens);
  if (request.profile && writes) trainer.profile();
  auto summary = trainer.run();
  if (!writes) return summary;
  const auto& times = *summary.stepwise;
  log::info("validation {}{}, best loss {:.4f} at step {}; {:.1f} ms a step, {} tokens/s",
            headline_of(task, *summary.validation),
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
                       {"out", request.out.string()}});
  if (request.experiment.config.train.init_from && request.resume && !RunDirectory::is_free(request.out)) {
    // A resumed run has the tokenizer of its initial weights.
    const auto before = load_run_experiment(RunDirectory::open(request.out, "--out").config_file()).config;
    if (const auto* data = data_of(before)) take_tokenizer(request.experiment, data->tokenizer, request.out.string());
  }
  const auto& config = request.experiment.config;
  if (is_linear(config) && group.size() > 1)
    fail_usage("model.kind linear is fitted by one process, not by {}", group.size());
  require_equal_pieces(config, group.size());
  Beginning beginning;
  if (auto finished = find_beginning(request, beginning)) return std::move(*finished);
  const auto device = prepare_device(config, request.device, request.force);
  const auto task = make_checked_task(request, beginning, device);
  throw_if_any_stopped(group);  // before there is anything to save
  const auto [run, lock] = open_or_create(request, beginning, task, device);
  if (beginning.checkpoint) continue_from(beginning, run, task, config);
  auto summary = is_linear(config) ? train_linear(request.experiment, run, task, device)
                                   : train_network(request, run, task, device, beginning);
  if (!group.is_first()) return summary;
  // Written once, when it is complete. If the process stops before, --resume writes it.
  write_summary(run, summary);
  log::info("{}", run.path().string());
  return summary;
}

}  // namespace metaformer
