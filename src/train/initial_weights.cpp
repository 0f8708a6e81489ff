#include "train/initial_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "config/loader.h"
#include "config/writer.h"
#include "run/checkpoint.h"
#include "run/huggingface/model_folder.h"
#include "run/safetensors.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view key = "train.init_from";

bool has_file(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::is_regular_file(folder / name, ignored);
}

nlohmann::ordered_json tokenizer_json(const TokenizerOptions& tokenizer) {
  LanguageModelConfig task;
  task.data.tokenizer = tokenizer;
  return config_to_json({.task = task}).at("data").at("tokenizer");
}

bool is_of_output(std::string_view name) { return name.starts_with("head.") || name.starts_with("logit_shift"); }

// Whether the tensor has a row for each token or position.
bool is_table(std::string_view name) {
  constexpr std::array<std::string_view, 4> tables = {"token_embedding.weight", "position_embedding.weight",
                                                      "token_scale", "head.weight"};
  return std::any_of(tables.begin(), tables.end(), [&](auto table) { return name.ends_with(table); });
}

[[noreturn]] void refuse(const std::string& source, const std::string& problem) {
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", key, source, problem));
}

void require_shape(const InitialWeights& weights, const ExperimentConfig& config,
                   const std::pair<const std::string, torch::Tensor>& source, const torch::Tensor& target) {
  const auto& [name, from] = source;
  const bool differs_in_rows =
      from.dim() == target.dim() && from.dim() > 0 && from.sizes().slice(1) == target.sizes().slice(1);
  if (from.sizes() == target.sizes() || (is_table(name) && differs_in_rows)) return;
  const auto keys = differing_model_keys(config, weights.config);
  refuse(weights.source, fmt::format("its {} has shape {}, this model's has {}{}{}", name, shape_text(from.sizes()),
                                     shape_text(target.sizes()), keys.empty() ? "" : ": ", fmt::join(keys, ", ")));
}

// "2 new (head.bias, head.weight)", with at most 8 names; initial_weights.json has all of them.
std::string counted(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return fmt::format("0 {}", what);
  const auto shown = std::min(names.size(), most);
  return fmt::format("{} {} ({}{})", names.size(), what, fmt::join(names.begin(), names.begin() + shown, ", "),
                     shown < names.size() ? ", ..." : "");
}

// Reads a model of another program. Its weights are valid only with its own tokenizer.
InitialWeights read_pretrained(const fs::path& folder, const std::string& source) {
  auto model = read_huggingface(folder);
  if (!model.tokenizer)
    refuse(source,
           "has no tokenizer (tokenizer.json, vocab.json and merges.txt, or tokenizer.model), without which "
           "its weights mean nothing");
  LanguageModelConfig task;
  task.data.tokenizer = PretrainedTokenizerOptions{.path = source};
  auto digest = sha256(to_safetensors(model.tensors));
  return {.source = source,
          .config = {.task = task, .model = model.config},
          .tensors = std::move(model.tensors),
          .codec = {.tokenizer = std::move(model.tokenizer), .labels = {}},
          .digest = digest,
          .is_foreign = true};
}

}  // namespace

InitialWeights read_initial_weights(const fs::path& path) {
  auto source = path.string();
  while (source.size() > 1 && source.ends_with('/')) source.pop_back();
  if (is_huggingface_folder(path)) return read_pretrained(path, source);
  std::error_code ignored;
  const bool is_checkpoint = has_file(path, "model.safetensors") && has_file(path, meta_file);
  if (!is_checkpoint && !has_file(path, "config.yaml"))
    refuse(source, fmt::format("no run (config.yaml), checkpoint ({}) or Hugging Face folder (config.json){}",
                               meta_file, fs::exists(path, ignored) ? "" : fmt::format(". {}", download_advice)));
  const auto run = RunDirectory::open(  // a checkpoint is RUN/checkpoints/step-N
      is_checkpoint ? fs::weakly_canonical(path, ignored).parent_path().parent_path() : path, "train.init_from");
  auto config = load_run_experiment(run.config_file()).config;
  if (is<LinearConfig>(config.model)) refuse(source, "a linear model has no weights of a network");
  auto checkpoint = load_checkpoint(run, is_checkpoint ? path.string() : "best", WithOptimizer::no);
  return {.source = source,
          .config = std::move(config),
          .tensors = std::move(checkpoint.model),
          .codec = std::move(checkpoint.codec),
          .digest = sha256_of_file(checkpoint.folder / "model.safetensors")};
}

void take_tokenizer(Experiment& experiment, const TokenizerOptions& tokenizer, const std::string& source) {
  auto* data = data_of(experiment.config);
  if (data == nullptr) return;  // numbers need no tokenizer
  constexpr std::string_view section = "data.tokenizer";
  const auto given = std::find_if(experiment.provenance.begin(), experiment.provenance.end(),
                                  [&](const auto& entry) { return entry.first.starts_with(section); });
  if (given != experiment.provenance.end() && tokenizer_json(data->tokenizer) != tokenizer_json(tokenizer))
    throw Error(
        ExitCode::usage,
        fmt::format("{}: {}: the weights of {} belong to its own tokenizer ({}): leave {} out, or write the same",
                    given->second.str(), section, source, kind_of(tokenizer), section));
  data->tokenizer = tokenizer;
  check_config(experiment.config, experiment.provenance);
}

WeightTransfer copy_initial_weights(const InitialWeights& weights, const ExperimentConfig& config, const Codec& codec,
                                    SequenceModel& model) {
  if (const auto keys = differing_model_keys(config, weights.config); weights.is_foreign && !keys.empty())
    refuse(weights.source, fmt::format("is another model than that of the config: {}; `metaformer config import {}` "
                                       "prints its config",
                                       fmt::join(keys, ", "), weights.source));
  if (const auto* own = blocks_of(config.model), *theirs = blocks_of(weights.config.model);
      own != nullptr && theirs != nullptr && own->context != theirs->context &&
      own->any_mixer([](const MixerConfig& mixer) { return is<HyenaOptions>(mixer); }))
    log::warning("{}: the filters of its mixer hyena were trained for model.context {}; with {} they are stretched",
                 weights.source, theirs->context, own->context);
  const torch::NoGradGuard no_grad;
  // Whether both heads give logits of the same tokens or classes.
  const bool same_outputs = is<ClassificationConfig>(config.task) == is<ClassificationConfig>(weights.config.task) &&
                            codec.labels == weights.codec.labels;
  const auto targets = named_state(model);
  std::map<std::string, torch::Tensor> rest(weights.tensors.begin(), weights.tensors.end());
  const auto find = [&](const std::string& name) {
    return is_of_output(name) && !same_outputs ? rest.end() : rest.find(name);
  };
  for (const auto& [name, target] : targets)  // before anything is changed
    if (const auto source = find(name); source != rest.end()) require_shape(weights, config, *source, target);
  WeightTransfer result;
  for (const auto& [name, target] : targets) {
    const auto source = find(name);
    if (source == rest.end()) {
      result.initialised.push_back(name);
      continue;
    }
    const auto& from = source->second;
    const auto all = target.dim() == 0 ? 0 : target.size(0);
    auto rows = is_table(name) ? std::min(from.size(0), all) : all;
    // The rows after the tokenizer's tokens belong to a task, such as the class token of a classifier.
    if (is_table(name) && name.find("position") == std::string::npos && !same_outputs)
      rows = std::min(rows, codec.tokenizer->vocabulary_size());
    if (target.dim() == 0)
      target.copy_(from);
    else
      target.narrow(0, 0, rows).copy_(from.narrow(0, 0, rows));
    rows < all ? result.parts.push_back(fmt::format("{} ({} of {} rows)", name, rows, all))
               : result.copied.push_back(name);
    rest.erase(source);
  }
  for (const auto& [name, tensor] : rest) result.unused.push_back(name);
  if (result.copied.empty() && result.parts.empty()) refuse(weights.source, "nothing of it is part of this model");
  return result;
}

std::string WeightTransfer::str() const {
  return fmt::format("{} parameters taken{}, {}, {}", copied.size(),
                     parts.empty() ? "" : ", " + counted("in part", parts), counted("new", initialised),
                     counted("left", unused));
}

std::vector<std::string> differing_model_keys(const ExperimentConfig& here, const ExperimentConfig& there) {
  const bool classifies = is<ClassificationConfig>(here.task);  // it has its own head
  const auto ours = flattened(config_to_json(here)), theirs = flattened(config_to_json(there));
  std::vector<std::string> keys;
  for (const auto& [name, value] : ours) {
    if (!name.starts_with("model.") || keeps_function(name)) continue;
    if (classifies && name == "model.embedding.tie") continue;
    const auto other = theirs.find(name);
    const auto there = other == theirs.end() ? "unknown" : other->second;
    if (there != value) keys.push_back(fmt::format("{} is {} here and {} there", name, value, there));
  }
  return keys;
}

}  // namespace metaformer
