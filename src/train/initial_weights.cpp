#include "train/initial_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/digest.h"
#include "base/error.h"
#include "config/loader.h"
#include "config/writer.h"
#include "run/checkpoint.h"
#include "run/huggingface/pretrained_model.h"
#include "run/safetensors.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view key = "train.init_from";

bool has_file(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::is_regular_file(folder / name, ignored);
}

// The run that a checkpoint lies in: RUN/checkpoints/step-N.
fs::path run_of_checkpoint(const fs::path& checkpoint) {
  std::error_code ignored;
  const auto folder = fs::weakly_canonical(checkpoint, ignored);
  return folder.parent_path().parent_path();
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

nlohmann::ordered_json tokenizer_json(const TokenizerOptions& tokenizer) {
  LanguageModelConfig task;
  task.data.tokenizer = tokenizer;
  return config_to_json({.task = task}).at("data").at("tokenizer");
}

// Logits of tokens, or of classes.
bool have_same_outputs(const InitialWeights& weights, const ExperimentConfig& config, const Codec& codec) {
  const bool classifies = is<ClassificationConfig>(config.task);
  return classifies == is<ClassificationConfig>(weights.config.task) && codec.labels == weights.codec.labels;
}

bool is_of_output(std::string_view name) { return name.starts_with("head.") || name.starts_with("logit_shift"); }

// With a row for each token or position.
bool is_table(std::string_view name) {
  constexpr std::array<std::string_view, 4> tables = {"token_embedding.weight", "position_embedding.weight",
                                                      "token_scale", "head.weight"};
  return std::any_of(tables.begin(), tables.end(), [&](auto table) { return name.ends_with(table); });
}

// Rows of a table that mean the same in both. Behind the tokens of the tokenizer are those of a task, such as the class
// token of a classifier.
std::int64_t common_rows(const std::string& name, const torch::Tensor& from, const torch::Tensor& to,
                         std::int64_t vocabulary, bool same_outputs) {
  const auto rows = std::min(from.size(0), to.size(0));
  const bool of_tokens = name.find("position") == std::string::npos;
  return of_tokens && !same_outputs ? std::min(rows, vocabulary) : rows;
}

class WeightCopier {
 public:
  WeightCopier(const InitialWeights& weights, const ExperimentConfig& config, const Codec& codec)
      : weights_(weights),
        config_(config),
        vocabulary_(codec.tokenizer->vocabulary_size()),
        same_outputs_(have_same_outputs(weights, config, codec)),
        rest_(weights.tensors.begin(), weights.tensors.end()) {}

  WeightTransfer copy(const NamedTensors& targets) {
    for (const auto& [name, target] : targets) require_shape(name, target);  // before anything is changed
    for (const auto& [name, target] : targets) copy(name, target);
    for (const auto& [name, tensor] : rest_) result_.unused.push_back(name);
    if (result_.copied.empty() && result_.parts.empty())
      throw Error(ExitCode::usage, fmt::format("{}: {}: nothing of it is part of this model", key, weights_.source));
    return std::move(result_);
  }

 private:
  const torch::Tensor* find(const std::string& name) const {
    const auto found = rest_.find(name);
    return found == rest_.end() || (is_of_output(name) && !same_outputs_) ? nullptr : &found->second;
  }

  static bool differ_in_rows(const torch::Tensor& from, const torch::Tensor& to) {
    return from.dim() == to.dim() && from.dim() > 0 && from.sizes().slice(1) == to.sizes().slice(1);
  }

  void require_shape(const std::string& name, const torch::Tensor& target) const {
    const auto* source = find(name);
    if (source == nullptr || source->sizes() == target.sizes()) return;
    if (is_table(name) && differ_in_rows(*source, target)) return;
    const auto keys = differing_model_keys(config_, weights_.config);
    throw Error(ExitCode::usage,
                fmt::format("{}: {}: its {} has shape {}, this model's has {}{}{}", key, weights_.source, name,
                            shape_text(source->sizes()), shape_text(target.sizes()), keys.empty() ? "" : ": ",
                            fmt::join(keys, ", ")));
  }

  void copy(const std::string& name, torch::Tensor target) {
    const auto* source = find(name);
    if (source == nullptr) return result_.initialised.push_back(name);
    const auto rows = is_table(name) ? common_rows(name, *source, target, vocabulary_, same_outputs_) : 0;
    if (is_table(name) && rows < target.size(0)) {
      target.narrow(0, 0, rows).copy_(source->narrow(0, 0, rows));
      result_.parts.push_back(fmt::format("{} ({} of {} rows)", name, rows, target.size(0)));
    } else {
      target.copy_(is_table(name) ? source->narrow(0, 0, rows) : *source);
      result_.copied.push_back(name);
    }
    rest_.erase(name);
  }

  const InitialWeights& weights_;
  const ExperimentConfig& config_;
  std::int64_t vocabulary_;
  bool same_outputs_;
  std::map<std::string, torch::Tensor> rest_;
  WeightTransfer result_;
};

// "2 new (head.bias, head.weight)"; the names of many are in environment.json.
std::string counted(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return fmt::format("0 {}", what);
  const auto shown = std::min(names.size(), most);
  return fmt::format("{} {} ({}{})", names.size(), what, fmt::join(names.begin(), names.begin() + shown, ", "),
                     shown < names.size() ? ", ..." : "");
}

}  // namespace

// A model of another program. Its tensors are of its own tokens, and of no others.
static InitialWeights read_pretrained(const fs::path& folder, const std::string& source) {
  auto model = read_huggingface(folder);
  if (!model.tokenizer)
    throw Error(ExitCode::usage,
                fmt::format("{}: {}: has no tokenizer (tokenizer.json, vocab.json and merges.txt, or tokenizer.model), "
                            "without which its weights mean nothing",
                            key, source));
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

InitialWeights read_initial_weights(const fs::path& path) {
  const auto source = without_trailing_slash(path.string());
  if (is_huggingface_folder(path)) return read_pretrained(path, source);
  const bool is_checkpoint = has_file(path, "model.safetensors") && has_file(path, meta_file);
  if (!is_checkpoint && !has_file(path, "config.yaml"))
    throw Error(ExitCode::usage,
                fmt::format("{}: {}: no run (config.yaml), checkpoint ({}) or Hugging Face folder (config.json)", key,
                            source, meta_file));
  const auto run = RunDirectory::open(is_checkpoint ? run_of_checkpoint(path) : path, "train.init_from");
  auto config = load_run_experiment(run.config_file()).config;
  if (is<LinearConfig>(config.model))
    throw Error(ExitCode::usage, fmt::format("{}: {}: a linear model has no weights of a network", key, source));
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
    throw Error(ExitCode::usage, fmt::format("{}: {}: is another model than that of the config: {}; `metaformer config "
                                             "import {}` prints its config",
                                             key, weights.source, fmt::join(keys, ", "), weights.source));
  const torch::NoGradGuard no_grad;
  return WeightCopier(weights, config, codec).copy(named_state(model));
}

nlohmann::ordered_json WeightTransfer::to_json() const {
  return {{"taken", copied}, {"taken_in_part", parts}, {"new", initialised}, {"left", unused}};
}

std::string WeightTransfer::str() const {
  return fmt::format("{} parameters taken{}, {}, {}", copied.size(),
                     parts.empty() ? "" : ", " + counted("in part", parts), counted("new", initialised),
                     counted("left", unused));
}

std::vector<std::string> differing_model_keys(const ExperimentConfig& here, const ExperimentConfig& there) {
  const bool classifies = is<ClassificationConfig>(here.task);  // its head is its own
  const auto ours = flattened(config_to_json(here)), theirs = flattened(config_to_json(there));
  std::vector<std::string> keys;
  for (const auto& [name, value] : ours) {
    if (!name.starts_with("model.") || keeps_function(name)) continue;
    if (classifies && name == "model.embedding.tie") continue;
    const auto other = theirs.find(name);
    if (other == theirs.end())
      keys.push_back(fmt::format("{} is {} here and unknown there", name, value));
    else if (other->second != value)
      keys.push_back(fmt::format("{} is {} here and {} there", name, value, other->second));
  }
  return keys;
}

}  // namespace metaformer
