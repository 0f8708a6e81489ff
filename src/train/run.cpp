#include "train/run.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include "core/build_info.h"
#include "core/config_writer.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/text.h"
#include "model/make_model.h"
#include "train/device.h"
#include "train/evaluation.h"
#include "train/named_tensors.h"
#include "train/trainer.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

void write_environment(const RunDirectory& run, const TrainRequest& request, const Task& task, torch::Device device) {
  utsname system{};
  uname(&system);
  const Json environment = {{"version", build_info().version},
                            {"commit", build_info().commit},
                            {"torch", TORCH_VERSION},
                            {"compiler", build_info().compiler},
                            {"device", device.str()},
                            {"device_name", device_description(device)},
                            {"threads", at::get_num_threads()},
                            {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
                            {"host", system.nodename},
                            {"command", request.command_line},
                            {"data", task.data_description()}};
  write_file_atomically(run.environment_file(), environment.dump(2) + "\n");
}

// The first key whose value differs, but for those that may differ when a run goes on.
std::string first_difference(const Json& before, const Json& now, const std::string& prefix = "") {
  static const std::vector<std::string> free = {"train.steps", "train.eval_interval", "train.checkpoint_interval",
                                                "train.log_interval", "train.keep_checkpoints"};
  for (const auto& [key, value] : now.items()) {
    const auto path = prefix + key;
    const auto earlier = before.value(key, Json());
    if (value.is_object() && earlier.is_object()) {
      if (auto inner = first_difference(earlier, value, path + "."); !inner.empty()) return inner;
    } else if (value != earlier && std::find(free.begin(), free.end(), path) == free.end()) {
      return fmt::format("{} is {} now and was {}", path, value.dump(), earlier.dump());
    }
  }
  return "";
}

void require_same_experiment(const RunDirectory& run, const ExperimentConfig& now) {
  const auto before = load_experiment(run.config_file().string()).config;
  const auto difference = first_difference(config_to_json(before), config_to_json(now));
  if (!difference.empty())
    throw Error(ExitCode::usage, fmt::format("--resume {}: {}; only steps, intervals and retention may change",
                                             run.path().string(), difference));
}

RunDirectory prepare_directory(TrainRequest& request) {
  const auto& config = request.experiment.config;
  if (request.resume && request.out.empty())
    throw Error(ExitCode::usage, "--resume needs --out: the run to go on with");
  if (request.out.empty()) request.out = default_run_folder(request.experiment.name);
  if (request.resume && !RunDirectory::is_free(request.out)) {
    auto run = RunDirectory::open(request.out);
    require_same_experiment(run, config);
    return run;
  }
  return RunDirectory::create(request.out);
}

Json read_summary(const RunDirectory& run) {
  constexpr std::uintmax_t largest = 1 << 20;
  return Json::parse(read_file(run.summary_file(), largest, ExitCode::failure), nullptr, false);
}

void describe(const Experiment& experiment, const Task& task, torch::Device device) {
  const auto& model = experiment.config.model;
  log::info("{}: mixer {}, {} layers, {} heads, width {}, context {}", experiment.name, kind_of(model.mixer),
            model.layers, model.heads, model.width, model.context);
  log::info("data: {}", task.data_summary());
  log::info("device: {}, {} threads, {}", device_description(device), at::get_num_threads(),
            to_string(experiment.config.train.precision));
}

}  // namespace

Json train(TrainRequest request) {
  const auto device = select_device(request.device);
  const auto& experiment = request.experiment;
  // Data problems must not leave an empty run behind.
  const auto task = make_task(experiment.config, request.offline);
  const auto run = prepare_directory(request);
  const auto checkpoint = request.resume ? load_newest_checkpoint(run) : std::nullopt;
  if (checkpoint && checkpoint->progress.step >= experiment.config.train.steps && fs::exists(run.summary_file())) {
    log::info("{} is finished: step {} of {}", run.path().string(), checkpoint->progress.step,
              experiment.config.train.steps);
    return read_summary(run);
  }
  log::add_file(run.log_file());
  write_file_atomically(run.config_file(), config_to_yaml(experiment.config));
  write_environment(run, request, *task, device);
  link_latest(run.path());
  describe(experiment, *task, device);
  if (checkpoint) log::info("going on from {}", checkpoint->folder.string());
  Trainer trainer(experiment, run, *task, device, checkpoint);
  if (request.profile) trainer.profile();
  auto summary = trainer.run();
  log::info("validation {}, best loss {:.4f} at step {}; {:.1f} ms a step, {} tokens/s",
            headline_of(*task, summary["validation"]), summary["best_val_loss"].get<double>(),
            summary["best_step"].get<std::int64_t>(), summary["ms_per_step"].get<double>(),
            human_count(summary["tokens_per_second"].get<double>()));
  log::info("{}", run.path().string());
  return summary;
}

LoadedRun load_run(const fs::path& folder, const std::string& checkpoint_name, const std::string& device_name) {
  const auto device = select_device(device_name);
  auto directory = RunDirectory::open(folder);
  auto experiment = load_experiment(directory.config_file().string());
  auto checkpoint = load_checkpoint(directory, checkpoint_name, WithOptimizer::no);
  auto model = make_model(experiment.config, {.vocabulary = checkpoint.codec.tokenizer->vocabulary_size(),
                                              .classes = static_cast<std::int64_t>(checkpoint.codec.labels.size())});
  copy_by_name(checkpoint.model, named_parameters(*model), (checkpoint.folder / "model.safetensors").string());
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
