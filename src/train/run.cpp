#include "train/run.h"

#include "attention/kernel_choice.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "config/paths.h"
#include "config/writer.h"
#include "cuda/metric_attention.h"
#include "distributed/process_group.h"
#include "model/make_model.h"
#include "ops/device.h"
#include "run/checkpoint.h"
#include "run/moved_data.h"
#include "run/run_directory.h"
#include "tasks/evaluation.h"
#include "tasks/make_task.h"
#include "train/evaluator.h"
#include "train/linear_baseline.h"
#include "train/preparation.h"
#include "train/resume.h"
#include "train/step/sliced_gradients.h"
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
  const auto choice =
      describe_kernel_choice(*model, train.precision, padded, cuda::metric_kernel_device() == cuda::MetricDevice::cuda);
  if (!choice.empty()) log::info("{}", choice);
}

// A run that goes on: what a checkpoint promises is mended, and the log says where it goes on.
void continue_from(Checkpoint& checkpoint, const RunDirectory& run, const Task& task, const ExperimentConfig& before,
                   const ExperimentConfig& now, bool writes) {
  require_best_checkpoint(
      run, [&](const auto& report) { return task.metrics->selection_error(report); }, checkpoint.progress);
  if (!writes) return;
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

// " (131072 of 5000000 tokens)"; nothing where the whole split is evaluated.
std::string describe_part(const EvaluationPart& part) {
  return part.is_whole() ? "" : fmt::format(" ({} of {} tokens)", part.tokens, part.split_tokens);
}

void describe_evaluation(const ExperimentConfig& config, const EvaluationPart& part) {
  if (part.is_whole()) return;
  const bool at_end = is<RandomEvaluationConfig>(config.train.evaluation);
  log::info("evaluation{}: {} of {} tokens of the validation split (train.evaluation; whole: all of them)",
            at_end ? " at the end" : "", part.tokens, part.split_tokens);
}

RunSummary train_network(const TrainRequest& request, const RunDirectory& run, const Task& task, torch::Device device,
                         const Beginning& beginning) {
  const auto& experiment = request.experiment;
  const bool writes = request.group->is_first();
  Trainer trainer(experiment, run, task, device, *request.group, beginning.checkpoint, beginning.initial);
  if (const auto& taken = trainer.taken(); taken && writes) report(*beginning.initial, *taken, run, experiment.config);
  if (writes) describe_evaluation(experiment.config, trainer.evaluated());
  if (request.profile && writes) trainer.profile();
  auto summary = trainer.run();
  if (!writes) return summary;
  const auto& times = *summary.stepwise;
  log::info("validation {}{}, best loss {:.4f} at step {}; {:.1f} ms a step, {} tokens/s",
            headline_of(task, summary.validation), describe_part(trainer.evaluated()), summary.best_val_loss,
            summary.best_step, times.ms_per_step, human_count(times.tokens_per_second));
  log::info("seconds: start-up {:.1f}, training {:.1f}, evaluation {:.1f}, checkpoints {:.1f}", times.startup_seconds,
            summary.train_seconds, times.evaluation_seconds, times.checkpoint_seconds);
  auto comparison =
      compare_with_baselines(experiment.config, task.data->description(),
                             {{"validation", summary.validation}, {"test", summary.test}}, request.offline);
  for (const auto& line : comparison.table) log::info("{}", line);
  summary.baselines = std::move(comparison.accuracies);
  return summary;
}

void begin(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
           std::int64_t step) {
  const auto& experiment = request.experiment;
  run.remove_left_overs();
  log::add_file(run.log_file());
  write_file_atomically(run.config_file(), config_to_yaml(experiment.config));
  write_environment(run, {request.command_line, device, step}, task.data->description());
  if (step > 0) link_latest(run.path());
  describe(experiment, task, device);
}

RunSummary train_in(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
                    Beginning beginning, const ExperimentConfig& before) {
  const auto& experiment = request.experiment;
  const bool writes = request.group->is_first();
  auto& checkpoint = beginning.checkpoint;
  if (checkpoint) continue_from(*checkpoint, run, task, before, experiment.config, writes);
  auto summary = is_linear(experiment.config) ? train_linear(experiment, run, task, device)
                                              : train_network(request, run, task, device, beginning);
  if (!writes) return summary;
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

// One process after the first: it may download and prepare what the others then find.
Task make_task_in_turn(const ExperimentConfig& config, bool offline, Codec codec, ProcessGroup& group) {
  if (!group.is_first()) wait_for_all(group);
  auto task = make_task(config, offline, std::move(codec));
  if (group.is_first()) wait_for_all(group);
  return task;
}

void require_same_start(const TrainRequest& request) {
  const auto& build = build_info();
  require_same(*request.group, {{"version", fmt::format("{} {}", build.version, build.commit)},
                                {"config", config_to_json(request.experiment.config)},
                                {"resume", request.resume},
                                {"out", request.out.string()}});
}

void require_divisible(const ExperimentConfig& config, const ProcessGroup& group) {
  if (is_linear(config) && group.size() > 1)
    throw Error(ExitCode::usage, fmt::format("model.kind linear is fitted by one process, not by {}", group.size()));
  require_equal_pieces(config, group.size());
}

// The folder that the first process has made or found.
RunDirectory open_run(const std::string& folder, const ProcessGroup& group) {
  try {
    return RunDirectory::open(folder, "--out");
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("rank {} does not see the run of rank 0: {}; all processes need the same "
                                          "file system",
                                          group.rank(), error.what()));
  }
}

}  // namespace

RunSummary train(TrainRequest request) {
  auto& group = *request.group;
  require_same_start(request);
  take_tokenizer_of_run(request);
  const auto& config = request.experiment.config;
  require_divisible(config, group);
  auto earlier = group.is_first() ? find_earlier_run(config, request.out, request.resume) : std::nullopt;
  const auto finished = earlier ? finished_summary(*earlier, config) : std::nullopt;
  if (of_first(group, finished ? "finished" : "") == "finished") return finished.value_or(RunSummary());
  Beginning beginning{.checkpoint = earlier ? std::move(earlier->checkpoint) : std::nullopt, .initial = {}};
  const auto checkpoint = of_first(group, beginning.checkpoint ? beginning.checkpoint->folder.string() : "");
  if (!group.is_first() && !checkpoint.empty())
    beginning.checkpoint = load_checkpoint(open_run(request.out.string(), group), checkpoint, WithOptimizer::yes);
  if (!beginning.checkpoint) beginning.initial = find_initial_weights(request.experiment);
  const auto device = prepare_device(config, request.device, request.force);
  if (earlier) require_moved_files(earlier->run, config, moved_data(earlier->config, config));
  // Data problems must not leave an empty run behind.
  const auto task = make_task_in_turn(config, request.offline, beginning.take_codec(), group);
  require_same(group, {{"data", without_paths(task.data->description())}});
  if (group.is_first()) task.data->check();
  task.batches->check_training();
  const auto& codec = task.data->codec();
  check_memory(config, codec, device, request.force);
  // Nor must weights that do not fit leave one: they are tried on another model of the same shapes.
  if (beginning.initial) take_weights(*beginning.initial, config, codec, *make_model(config, sizes_of(codec)));
  if (earlier) require_same_data(*earlier, config, task);
  throw_if_any_stopped(group);  // before there is anything to save
  std::optional<RunDirectory> run;
  std::unique_ptr<FileLock> lock;
  if (group.is_first()) {
    if (request.out.empty()) request.out = default_run_folder(request.experiment.name);
    run = earlier ? std::move(earlier->run) : RunDirectory::create(request.out);
    lock = earlier ? std::move(earlier->lock) : std::make_unique<FileLock>(run->lock_file());
    begin(*run, request, task, device, beginning.checkpoint ? beginning.checkpoint->progress.step : 0);
  }
  const auto folder = of_first(group, run ? run->path().string() : "");
  if (!run) {
    run = open_run(folder, group);
    log::add_error_file(run->log_file(group.rank()));
  }
  return train_in(*run, request, task, device, std::move(beginning), earlier ? earlier->config : config);
}

}  // namespace metaformer
