#include "train/run.h"

#include "attention/kernel_choice.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "baselines/comparison.h"
#include "baselines/linear_training.h"
#include "config/seeded_paths.h"
#include "config/writer.h"
#include "ops/device.h"
#include "run/best_checkpoint.h"
#include "run/environment.h"
#include "tasks/evaluation.h"
#include "tasks/make_task.h"
#include "train/milestones.h"
#include "train/preparation.h"
#include "train/resume.h"
#include "train/trainer.h"

namespace metaformer {

namespace {

bool is_linear(const ExperimentConfig& config) { return is<LinearConfig>(config.model); }

// What a training starts from; nothing: random weights.
struct Beginning {
  std::optional<Checkpoint> checkpoint;
  std::optional<InitialWeights> initial;

  // Tokenizer and labels that belong to the weights; nothing: those that the data make.
  Codec take_codec() {
    if (checkpoint) return std::move(checkpoint->codec);
    return initial ? Codec{.tokenizer = std::move(initial->codec.tokenizer), .labels = {}} : Codec{};
  }
};

void describe(const Experiment& experiment, const Task& task, torch::Device device) {
  const auto& train = experiment.config.train;
  log::info("{}: {}", experiment.name, describe_model(experiment.config));
  log::info("data: {}{}", train.overfit_batch ? "only the first batch of: " : "", task.data->summary());
  log::info("device: {}, {} thread{}, {}", device_description(device), at::get_num_threads(),
            at::get_num_threads() == 1 ? "" : "s", to_string(train.precision));
  const auto* model = std::get_if<TransformerConfig>(&experiment.config.model);
  if (!device.is_cuda() || model == nullptr) return;
  const bool padded = is<ClassificationConfig>(experiment.config.task);
  const auto choice = describe_kernel_choice(*model, train.precision, padded);
  if (!choice.empty()) log::info("{}", choice);
}

// A run that goes on: what a checkpoint promises is mended, and the log says where it goes on.
void continue_from(Checkpoint& checkpoint, const RunDirectory& run, const Task& task, const ExperimentConfig& before,
                   const ExperimentConfig& now) {
  require_best_checkpoint(
      run, [&](const auto& report) { return task.metrics->selection_error(report); }, checkpoint.progress);
  mend_links(run.checkpoints(), checkpoint.progress, now.train.keep_checkpoints);
  log::info("going on from {}", checkpoint.folder.string());
  describe_schedule(before, now, checkpoint.progress);
}

// Which parameters of the run are from where, in the log and, with all names, in a file of the run.
void report(const InitialWeights& initial, const TakenWeights& taken, const RunDirectory& run,
            const ExperimentConfig& config) {
  log::info("weights from {}: {}", initial.source, taken.str());
  if (const auto keys = differing_model_keys(config, initial.config); !keys.empty())
    log::warning("the weights of {} were trained in another model: {}", initial.source, fmt::join(keys, ", "));
  nlohmann::ordered_json json = {{"source", initial.source}, {"sha256", initial.digest}};
  json.update(taken.to_json());
  write_file_atomically(run.initial_weights_file(), json_text(json, 2) + "\n");
}

RunSummary train_network(const TrainRequest& request, const RunDirectory& run, const Task& task, torch::Device device,
                         const Beginning& beginning) {
  const auto& experiment = request.experiment;
  Trainer trainer(experiment, run, task, device, beginning.checkpoint, beginning.initial);
  if (const auto& taken = trainer.taken()) report(*beginning.initial, *taken, run, experiment.config);
  if (request.profile) trainer.profile();
  auto summary = trainer.run();
  const auto& times = *summary.stepwise;
  log::info("validation {}, best loss {:.4f} at step {}; {:.1f} ms a step, {} tokens/s",
            headline_of(task, summary.validation), summary.best_val_loss, summary.best_step, times.ms_per_step,
            human_count(times.tokens_per_second));
  log::info("seconds: start-up {:.1f}, training {:.1f}, evaluation {:.1f}, checkpoints {:.1f}", times.startup_seconds,
            summary.train_seconds, times.evaluation_seconds, times.checkpoint_seconds);
  auto comparison =
      compare_with_baselines(experiment.config, task.data->description(),
                             {{"validation", summary.validation}, {"test", summary.test}}, request.offline);
  for (const auto& line : comparison.table) log::info("{}", line);
  summary.baselines = std::move(comparison.accuracies);
  return summary;
}

RunSummary train_in(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
                    Beginning beginning, const ExperimentConfig& before) {
  const auto& experiment = request.experiment;
  auto& checkpoint = beginning.checkpoint;
  run.remove_left_overs();
  log::add_file(run.log_file());
  write_file_atomically(run.config_file(), config_to_yaml(experiment.config));
  write_environment(run, {request.command_line, device, checkpoint ? checkpoint->progress.step : 0},
                    task.data->description());
  link_latest(run.path());
  describe(experiment, task, device);
  if (checkpoint) continue_from(*checkpoint, run, task, before, experiment.config);
  auto summary = is_linear(experiment.config) ? train_linear(experiment, run, task, device)
                                              : train_network(request, run, task, device, beginning);
  // Written once, when all of it is there: what stops before is made up for by --resume.
  write_summary(run, summary);
  log::info("{}", run.path().string());
  return summary;
}

// The summary of a run that has nothing left to do. Nothing when its process died before it wrote one, or when that is
// of an earlier end.
std::optional<RunSummary> finished_summary(const EarlierRun& earlier, const ExperimentConfig& config) {
  if (!earlier.checkpoint) return std::nullopt;
  const auto& progress = earlier.checkpoint->progress;
  // A linear model's checkpoint is its last.
  if (!is_linear(config) && !is_finished(config.train, progress)) return std::nullopt;
  auto summary = read_summary(earlier.run);
  if (!summary || summary->steps != progress.step) return std::nullopt;
  log::info("{} is finished: step {} of {}", earlier.run.path().string(), progress.step,
            is_linear(config) ? progress.step : config.train.steps);
  return summary;
}

// A run that goes on has the tokenizer that its initial weights brought.
void take_tokenizer_of_run(TrainRequest& request) {
  if (!request.experiment.config.train.init_from || !request.resume || RunDirectory::is_free(request.out)) return;
  const auto before = load_run_experiment(RunDirectory::open(request.out, "--out").config_file()).config;
  if (const auto* data = data_of(before)) take_tokenizer(request.experiment, data->tokenizer, request.out.string());
}

// train.init_from, for a run that does not go on.
std::optional<InitialWeights> find_initial_weights(Experiment& experiment) {
  const auto& path = experiment.config.train.init_from;
  if (!path) return std::nullopt;
  auto initial = read_initial_weights(with_seed(*path, experiment.config.train));
  const auto* data = data_of(initial.config);
  if ((data == nullptr) != (data_of(experiment.config) == nullptr))
    throw Error(ExitCode::usage,
                fmt::format("train.init_from: {}: was trained for task {}, whose tokens mean nothing to task {}",
                            initial.source, kind_of(initial.config.task), kind_of(experiment.config.task)));
  if (data != nullptr) take_tokenizer(experiment, data->tokenizer, initial.source);
  return initial;
}

}  // namespace

RunSummary train(TrainRequest request) {
  take_tokenizer_of_run(request);
  const auto& config = request.experiment.config;
  auto earlier = find_earlier_run(config, request.out, request.resume);
  if (earlier)
    if (auto summary = finished_summary(*earlier, config)) return *summary;
  Beginning beginning{.checkpoint = earlier ? std::move(earlier->checkpoint) : std::nullopt, .initial = {}};
  if (!beginning.checkpoint) beginning.initial = find_initial_weights(request.experiment);
  const auto device = prepare_device(config, request.device, request.force);
  // Data problems must not leave an empty run behind.
  const auto task = make_task(config, request.offline, beginning.take_codec());
  task.data->check();
  check_memory(config, task.data->codec(), device, request.force);
  if (earlier) require_same_data(earlier->run, task);
  if (request.out.empty()) request.out = default_run_folder(request.experiment.name);
  throw_if_stopped();  // before there is anything to save
  const auto run = earlier ? std::move(earlier->run) : RunDirectory::create(request.out);
  const auto lock = earlier ? std::move(earlier->lock) : std::make_unique<FileLock>(run.lock_file());
  return train_in(run, request, task, device, std::move(beginning), earlier ? earlier->config : config);
}

}  // namespace metaformer
