#include "run/load_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/experiment_config.h"
#include "model/make_model.h"
#include "ops/device.h"
#include "ops/named_tensors.h"
#include "tasks/evaluation.h"
#include "tasks/linear_classifier.h"
#include "tasks/make_task.h"

namespace metaformer {

namespace {

std::string path_of_weights(const Checkpoint& checkpoint) { return (checkpoint.folder / "model.safetensors").string(); }

void require_usable(const ExperimentConfig& config, const Checkpoint& checkpoint) {
  if (is<ClassificationConfig>(config.task) && checkpoint.codec.labels.empty())
    throw Error(ExitCode::failure, (checkpoint.folder / "labels.json").string() + ": missing; a classifier needs it");
  for (const auto& [name, tensor] : checkpoint.model)  // training saves only finite weights
    if (!tensor.isfinite().all().item<bool>())
      throw Error(ExitCode::diverged,
                  fmt::format("{}: {} is not finite: take another checkpoint", path_of_weights(checkpoint), name));
}

// `flag`: the option that gives the context, for the error.
void require_any_context(const ExperimentConfig& config, std::int64_t context, const std::string& flag) {
  const auto* model = blocks_of(config.model);
  const auto trained = context_of(config.model);
  if (model != nullptr && is<LearnedPositionsConfig>(model->positions) && context != trained)
    throw Error(ExitCode::usage,
                fmt::format("{}: this run has learned positions for {} tokens and no others; runs with model.positions "
                            "none, sinusoidal, rotary, alibi, t5, shaw or transformer_xl take any context",
                            flag, trained));
  if (model == nullptr || context == trained) return;
  for (std::int64_t layer = 0; layer < model->layers; ++layer)
    if (const auto& mixer = model->mixer_of(layer); !takes_longer_context(mixer))
      throw Error(ExitCode::usage, fmt::format("{}: the mixer {} of this run is made for {} tokens and no others", flag,
                                               kind_of(mixer), trained));
}

void set_context(ExperimentConfig& config, std::int64_t context) {
  require_any_context(config, context, fmt::format("--context {}", context));
  if (list_task(config.task))
    throw Error(ExitCode::usage, "--context: the lists of this run have the length that it was trained on");
  if (recall_rows(config.task) != nullptr)
    throw Error(ExitCode::usage, "--context: has no effect on rows of task.length tokens; use --set task.length=N");
  std::visit([&](auto& options) { options.context = context; }, config.model);
}

// Only options on which no weight depends may be set for a trained model.
void require_free_options(const std::vector<std::string>& overrides, const ExperimentConfig& trained) {
  constexpr std::array<std::string_view, 3> mixers = {"model.mixer.", "model.encoder.mixer.", "model.cross_mixer."};
  constexpr std::array<std::string_view, 4> others = {"model.memory", "model.same_length",
                                                      "model.positions.clamp_length", "model.carry_state"};
  constexpr std::array<std::string_view, 11> row_options = {
      "task.length",   "task.pairs",  "task.updates", "task.queries", "task.gap_power", "task.filler",
      "task.triggers", "task.tokens", "task.noise",   "task.longest", "task.held_out"};
  for (const auto& override : overrides) {
    const auto key = override.substr(0, override.find('='));
    if (is_data_path(trained, key)) continue;
    const auto option_of = [&](std::string_view mixer) {
      return key.starts_with(mixer) && !key.ends_with(".kind") && !key.ends_with(".mixer") && !key.ends_with(".layers");
    };
    const bool of_rows = recall_rows(trained.task) != nullptr &&
                         std::find(row_options.begin(), row_options.end(), key) != row_options.end();
    if (of_rows) continue;
    const bool of_mixer = std::any_of(mixers.begin(), mixers.end(), option_of);
    if (!of_mixer && std::find(others.begin(), others.end(), key) == others.end())
      throw Error(ExitCode::usage, fmt::format("--set {}: of a trained model only options of its mixer, such as "
                                               "model.mixer.rounds=8, {}, rows that the program draws, such as "
                                               "task.length=256, and where its data lie now, such as data.path=..., "
                                               "can be set{}",
                                               override, fmt::join(others, ", "),
                                               recall_rows(trained.task) == nullptr
                                                   ? ""
                                                   : did_you_mean(key, {row_options.begin(), row_options.end()})));
    if (of_mixer && key.ends_with(".score_std"))
      throw Error(ExitCode::usage, fmt::format("--set {}: has no effect on a trained model", override));
  }
}

// With noise, a part of the vocabulary means noise, and a model has learned which part.
void require_same_tokens(const TaskConfig& trained, const TaskConfig& task) {
  const auto *before = std::get_if<InContextRecallConfig>(&trained), *now = std::get_if<InContextRecallConfig>(&task);
  if (before != nullptr && now != nullptr && before->symbols() != now->symbols())
    throw Error(ExitCode::usage,
                fmt::format("--set task.noise={}: the model was trained with {}, and {} tokens mean "
                            "something else {} noise; expected {}",
                            now->noise, before->noise, before->noise_vocabulary, now->noise > 0 ? "with" : "without",
                            now->noise > 0 ? "0" : "more than 0"));
}

// The value of task.length in the options, if it is above the context. A value that is not a number is an error later.
std::optional<std::int64_t> longer_rows(const ExperimentConfig& trained, const std::vector<std::string>& options) {
  constexpr std::string_view key = "task.length=";
  std::optional<std::int64_t> length;
  for (const auto& option : options)
    if (option.starts_with(key)) length = as_number<std::int64_t>(option.substr(key.size()));
  return length && *length > context_of(trained.model) ? length : std::nullopt;
}

}  // namespace

LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint_name,
                   const std::string& device_name, const ModelChanges& changes) {
  const auto device = select_device(device_name);
  auto directory = RunDirectory::open_trained(folder);
  const auto trained = load_run_experiment(directory.config_file()).config;
  require_free_options(changes.options, trained);
  // train.evaluation has no effect after training, and random evaluation cannot be combined with a memory.
  auto options = changes.options;
  const auto sets_order = [](const std::string& option) {
    return option.starts_with("model.memory=") || option.starts_with("model.carry_state=");
  };
  if (std::any_of(options.begin(), options.end(), sets_order)) options.emplace_back("train.evaluation=whole");
  if (const auto length = longer_rows(trained, options)) {
    require_any_context(trained, *length, fmt::format("--set task.length={}", *length));
    options.push_back(fmt::format("model.context={}", *length));
  }
  auto experiment = load_run_experiment(directory.config_file(), options);
  require_same_tokens(trained.task, experiment.config.task);
  if (changes.context) set_context(experiment.config, *changes.context);
  auto checkpoint = load_checkpoint(directory, checkpoint_name, WithOptimizer::no);
  const auto& config = experiment.config;
  require_usable(config, checkpoint);
  std::shared_ptr<SequenceModel> model;
  std::shared_ptr<const Predictor> predictor;
  if (const auto* linear = std::get_if<LinearConfig>(&config.model)) {
    auto weights = std::make_shared<LinearModel>(*linear, std::ssize(checkpoint.codec.labels));
    copy_by_name(checkpoint.model, weights->tensors(), path_of_weights(checkpoint));
    weights->to(device);
    predictor = std::move(weights);
  } else {
    model = make_model(config, sizes_of(checkpoint.codec));
    copy_by_name(checkpoint.model, named_state(*model), path_of_weights(checkpoint));
    model->to(device);
    predictor = std::make_shared<NetworkPredictor>(*model);
  }
  auto moved = moved_data(trained, config);
  return {.experiment = std::move(experiment),
          .directory = std::move(directory),
          .checkpoint = checkpoint.folder,
          .progress = std::move(checkpoint.progress),
          .moved_data = std::move(moved),
          .model = std::move(model),
          .predictor = std::move(predictor),
          .codec = std::move(checkpoint.codec),
          .device = device};
}

Task task_of(const LoadedRun& run, bool offline) {
  const auto& config = run.experiment.config;
  require_moved_files(run.directory, config, run.moved_data);
  auto task = make_task(config, offline, run.codec);
  require_moved_data(run.directory, config, run.moved_data, task.description);
  if (const auto difference = difference_of_data(run.directory, task.description))
    log::warning("{}: the data are not what this run was trained on; its environment.json names those{}",
                 run.directory.path().string(), difference->empty() ? "" : " (" + *difference + ")");
  return task;
}

}  // namespace metaformer
