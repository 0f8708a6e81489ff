#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "baselines/baselines.h"
#include "baselines/linear_training.h"
#include "config/writer.h"
#include "infer/evaluation.h"
#include "model/make_model.h"
#include "model/memory_estimate.h"
#include "ops/device.h"
#include "ops/matrix_products.h"
#include "run/environment.h"
#include "run/named_tensors.h"
#include "tasks/make_task.h"
#include "train/best_checkpoint.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// The first key whose value differs, but for those that may differ when a run goes on.
std::string first_difference(const Json& before, const Json& now, const std::string& prefix = "") {
  static const std::vector<std::string> free = {
      "train.steps",        "train.eval_interval",        "train.checkpoint_interval",
      "train.log_interval", "train.diagnostics_interval", "train.keep_checkpoints",
      "train.patience"};
  for (const auto& [key, value] : now.items()) {
    const auto path = prefix + key;
    const auto earlier = before.value(key, Json());
    if (value.is_object() && earlier.is_object()) {
      if (auto inner = first_difference(earlier, value, path + "."); !inner.empty()) return inner;
    } else if (value != earlier && std::find(free.begin(), free.end(), path) == free.end()) {
      return fmt::format("{} is {} now and was {}", path, json_text(value), json_text(earlier));
    }
  }
  return "";
}

void require_same_experiment(const RunDirectory& run, const ExperimentConfig& before, const ExperimentConfig& now) {
  const auto difference = first_difference(config_to_json(before), config_to_json(now));
  if (!difference.empty())
    throw Error(ExitCode::usage,
                fmt::format("--resume {}: {}; only steps, intervals, patience and retention may change",
                            run.path().string(), difference));
}

// The program's own files, however many classes their tables have.
Json read_json(const fs::path& file) {
  constexpr std::uintmax_t largest = 1 << 26;
  constexpr auto any_number = std::numeric_limits<std::int64_t>::max();
  return parse_json<Json>(read_file(file, largest, ExitCode::failure), any_number);
}

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string describe(const ModelConfig& model) {
  if (model.kind == ModelKind::linear)
    return fmt::format("linear, 1- to {}-grams in {} buckets", model.linear.ngrams, model.linear.buckets);
  return fmt::format("mixer {}, {}, {}, width {}, context {}", kind_of(model.mixer), counted(model.layers, "layer"),
                     counted(model.heads, "head"), model.width, model.context);
}

// Another number of steps stretches the schedule, so that the learning rate jumps where training continues.
void describe_schedule(const TrainConfig& before, const TrainConfig& now, const Progress& progress) {
  if (before.steps == now.steps) return;
  const auto rate = [&](const TrainConfig& train, std::int64_t step) {
    return learning_rate_at(train, step) * std::pow(train.rollback_factor, static_cast<double>(progress.rollbacks));
  };
  const auto next = progress.step;
  const auto course = fmt::format(
      "train.steps was {} and is {}; the {} schedule continues at step {} with learning rate "
      "{:.3g}{} and ends at step {} with {:.3g}",
      before.steps, now.steps, to_string(now.schedule), next, rate(now, next),
      rate(now, next) == rate(before, next) ? ", as before,"
                                            : fmt::format(", where it was {:.3g} before,", rate(before, next)),
      now.steps, rate(now, now.steps - 1));
  rate(now, next) == rate(before, next) ? log::write_info(course) : log::write_warning(course);
}

void describe(const Experiment& experiment, const Task& task, torch::Device device) {
  log::info("{}: {}", experiment.name, describe(experiment.config.model));
  log::info("data: {}", task.data_summary());
  log::info("device: {}, {} thread{}, {}", device_description(device), at::get_num_threads(),
            at::get_num_threads() == 1 ? "" : "s", to_string(experiment.config.train.precision));
}

}  // namespace

bool has_same_data(const RunDirectory& run, const Task& task) {
  const auto environment = read_environment(run);
  const auto before = environment.is_object() ? environment.value("data", Json()) : Json();
  return !before.is_object() || without_paths(before) == without_paths(task.data_description());
}

namespace {

// What a run goes on from; nothing for a new run.
struct Earlier {
  RunDirectory run;
  ExperimentConfig config;  // as it was trained last
  std::unique_ptr<FileLock> lock;
  std::optional<Checkpoint> checkpoint;
};

// What is done cannot be undone. A linear model has its one step whatever train.steps says.
void require_reachable(const RunDirectory& run, const ExperimentConfig& config, const Progress& progress) {
  if (config.train.steps < progress.step)
    throw Error(ExitCode::usage, fmt::format("--resume {}: train.steps is {}, and the run has done {} steps; give at "
                                             "least that many",
                                             run.path().string(), config.train.steps, progress.step));
}

std::optional<Earlier> find_earlier(const TrainRequest& request) {
  if (request.resume && request.out.empty())
    throw Error(ExitCode::usage, "--resume needs --out: the run to go on with");
  if (!request.resume || RunDirectory::is_free(request.out)) return std::nullopt;
  Earlier earlier{.run = RunDirectory::open(request.out, "--out"), .config = {}, .lock = {}, .checkpoint = {}};
  earlier.lock = std::make_unique<FileLock>(earlier.run.lock_file());
  earlier.config = load_experiment(earlier.run.config_file().string()).config;
  require_same_experiment(earlier.run, earlier.config, request.experiment.config);
  earlier.run.remove_left_overs();
  mend_checkpoints(earlier.run);
  earlier.checkpoint = load_newest_checkpoint(earlier.run);
  if (earlier.checkpoint) require_reachable(earlier.run, request.experiment.config, earlier.checkpoint->progress);
  return earlier;
}

// The summary of a run that ended at `step`; nothing when its process died before it wrote one, or when it is of an
// earlier end.
std::optional<Json> finished_summary(const RunDirectory& run, std::int64_t step) {
  if (!fs::exists(run.summary_file())) return std::nullopt;
  auto summary = read_json(run.summary_file());
  const bool current = summary.is_object() && summary.value("steps", Json()) == step;
  return current ? std::optional(std::move(summary)) : std::nullopt;
}

void require_same_data(const RunDirectory& run, const Task& task) {
  if (!has_same_data(run, task))
    throw Error(ExitCode::usage, fmt::format("--resume {}: the data are not those it was trained on (its "
                                             "environment.json names them)",
                                             run.path().string()));
}

std::string describe_memory(const MemoryEstimate& estimate) {
  return fmt::format(
      "training takes about {} of memory ({} for weights, gradients and optimiser state, {} for "
      "activations), and {} are available; lower train.batch_size (and raise train.accumulate), "
      "model.context or model.width",
      human_bytes(estimate.total()), human_bytes(estimate.state()), human_bytes(estimate.activations),
      human_bytes(machine_memory()));
}

// What clearly cannot fit is not begun: it would keep the machine swapping until it is killed.
void refuse_what_cannot_fit(const MemoryEstimate& estimate) {
  if (clearly_exceeds(estimate, machine_memory()))
    throw Error(ExitCode::out_of_memory, describe_memory(estimate) + ", or train with --force");
}

void check_memory(const ExperimentConfig& config, const Codec& codec, torch::Device device, bool force) {
  if (!device.is_cpu()) return;
  const auto estimate = estimate_memory(config, {.vocabulary = codec.tokenizer->vocabulary_size(),
                                                 .classes = static_cast<std::int64_t>(codec.labels.size())});
  if (!force) refuse_what_cannot_fit(estimate);
  if (estimate.total() > machine_memory()) log::warning("{}", describe_memory(estimate));
}

void require_backend(const ModelConfig& model, torch::Device device) {
  const bool fused = backend_of(model.mixer) == Backend::fused;
  if (fused && device.is_cpu())
    throw Error(ExitCode::usage,
                "model.mixer.backend: 'fused' needs a CUDA device, and this runs on the CPU; set auto or composed");
}

void add_baselines(Json& summary, const TrainRequest& request, const Task& task) {
  auto baselines = find_baselines(request.experiment.config, task.data_description(), request.offline);
  if (baselines.is_null()) return;
  for (const auto& line :
       compare_with_baselines(baselines, {{"validation", summary["validation"]}, {"test", summary["test"]}}))
    log::info("{}", line);
  summary["baselines"] = std::move(baselines);
}

// Written once, when all of it is there: what stops before is made up for by --resume.
void write_summary(const RunDirectory& run, const Json& summary) {
  write_file_atomically(run.summary_file(), json_text(summary, 2) + "\n");
  log::info("{}", run.path().string());
}

Json train_in(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device,
              std::optional<Checkpoint> checkpoint, const TrainConfig& before) {
  const auto& experiment = request.experiment;
  run.remove_left_overs();
  log::add_file(run.log_file());
  write_file_atomically(run.config_file(), config_to_yaml(experiment.config));
  write_environment(run, {request.command_line, device, checkpoint ? checkpoint->progress.step : 0},
                    task.data_description());
  link_latest(run.path());
  describe(experiment, task, device);
  if (checkpoint) {
    require_best_checkpoint(run, task, checkpoint->progress);
    mend_links(run.checkpoints(), checkpoint->progress, experiment.config.train.keep_checkpoints);
    log::info("going on from {}", checkpoint->folder.string());
    describe_schedule(before, experiment.config.train, checkpoint->progress);
  }
  if (experiment.config.model.kind == ModelKind::linear) {
    auto summary = train_linear(experiment, run, task, device);
    write_summary(run, summary);
    return summary;
  }
  Trainer trainer(experiment, run, task, device, checkpoint);
  if (request.profile) trainer.profile();
  auto summary = trainer.run();
  log::info("validation {}, best loss {:.4f} at step {}; {:.1f} ms a step, {} tokens/s",
            headline_of(task, summary["validation"]), summary["best_val_loss"].get<double>(),
            summary["best_step"].get<std::int64_t>(), summary["ms_per_step"].get<double>(),
            human_count(summary["tokens_per_second"].get<double>()));
  add_baselines(summary, request, task);
  write_summary(run, summary);
  return summary;
}

}  // namespace

torch::Device prepare_device(const ExperimentConfig& config, const std::string& name, bool force) {
  const auto device = select_device(name);
  // Before the data are read: with the smallest vocabulary that they can have.
  if (device.is_cpu() && !force) refuse_what_cannot_fit(estimate_memory(config, {.vocabulary = 1, .classes = 2}));
  require_backend(config.model, device);
  require_right_products();
  if (device.is_cuda())
    at::globalContext().setFloat32MatmulPrecision(config.train.precision == Precision::tf32 ? "high" : "highest");
  return device;
}

Json train(TrainRequest request) {
  const auto& config = request.experiment.config;
  auto earlier = find_earlier(request);
  auto checkpoint = earlier ? std::move(earlier->checkpoint) : std::nullopt;
  const bool at_once = config.model.kind == ModelKind::linear;  // its checkpoint is its last
  if (checkpoint && (at_once || is_finished(config.train, checkpoint->progress))) {
    if (auto summary = finished_summary(earlier->run, checkpoint->progress.step)) {
      log::info("{} is finished: step {} of {}", earlier->run.path().string(), checkpoint->progress.step,
                at_once ? checkpoint->progress.step : config.train.steps);
      return *summary;
    }
  }
  const auto device = prepare_device(config, request.device, request.force);
  // Data problems must not leave an empty run behind.
  const auto task = make_task(config, request.offline, checkpoint ? std::move(checkpoint->codec) : Codec{});
  task->check_data();
  check_memory(config, task->codec(), device, request.force);
  if (earlier) require_same_data(earlier->run, *task);
  if (request.out.empty()) request.out = default_run_folder(request.experiment.name);
  throw_if_stopped();  // before there is anything to save
  const auto run = earlier ? std::move(earlier->run) : RunDirectory::create(request.out);
  const auto lock = earlier ? std::move(earlier->lock) : std::make_unique<FileLock>(run.lock_file());
  return train_in(run, request, *task, device, std::move(checkpoint), (earlier ? earlier->config : config).train);
}

// No training saves such weights, and their answers would mean nothing.
static void require_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.model)
    if (!tensor.isfinite().all().item<bool>())
      throw Error(ExitCode::diverged, fmt::format("{}: {} is not finite: take another checkpoint",
                                                  (checkpoint.folder / "model.safetensors").string(), name));
}

LoadedRun load_run(const fs::path& folder, const std::string& checkpoint_name, const std::string& device_name) {
  const auto device = select_device(device_name);
  auto directory = RunDirectory::open(folder);
  if (folder == latest_run) log::info("{} is {}", latest_run, latest_run_target());
  auto experiment = load_experiment(directory.config_file().string());
  auto checkpoint = load_checkpoint(directory, checkpoint_name, WithOptimizer::no);
  if (experiment.config.task == TaskKind::classification && checkpoint.codec.labels.empty())
    throw Error(ExitCode::failure, (checkpoint.folder / "labels.json").string() + ": missing; a classifier needs it");
  auto model = make_model(experiment.config, {.vocabulary = checkpoint.codec.tokenizer->vocabulary_size(),
                                              .classes = static_cast<std::int64_t>(checkpoint.codec.labels.size())});
  require_finite(checkpoint);
  copy_by_name(checkpoint.model, named_state(*model), (checkpoint.folder / "model.safetensors").string());
  model->to(device);
  model->eval();
  return {.experiment = std::move(experiment),
          .directory = std::move(directory),
          .checkpoint = checkpoint.folder,
          .progress = std::move(checkpoint.progress),
          .model = std::move(model),
          .codec = std::move(checkpoint.codec),
          .device = device};
}

}  // namespace metaformer
