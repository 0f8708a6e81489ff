#include "config/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/digest.h"
#include "base/json.h"
#include "config/writer.h"

namespace metaformer {

namespace {

void lower_floor(ScheduleConfig& schedule, double learning_rate) {
  const auto lower = [&](auto& options) {
    if constexpr (requires { options.floor; })
      if (options.floor > learning_rate) options.floor = learning_rate / 10;
  };
  std::visit(lower, schedule);
}

void keep_whitespace(TokenizerOptions& tokenizer) {
  const auto keep = [](auto& options) {
    if constexpr (requires { options.whitespace; }) options.whitespace = Whitespace::kept;
  };
  std::visit(keep, tokenizer);
}

// Tables with a row for each word or n-gram, of which a batch reads few.
bool has_large_tables(const ExperimentConfig& config) {
  const auto* model = blocks_of(config.model);
  if (model != nullptr && (has_regions(model->embedding) || model->embedding.ngrams.order > 1)) return true;
  const auto* classifier = std::get_if<ClassificationConfig>(&config.task);
  return classifier != nullptr && bag_options(classifier->head) != nullptr;
}

// Whether rows are texts of different lengths, of which a batch has a fixed number.
bool is_padded(const TaskConfig& task) {
  return is<ClassificationConfig>(task) || (is<SequenceToSequenceConfig>(task) && !batches_by_tokens(task));
}

}  // namespace

EmbeddingScale default_embedding_scale(const ModelConfig& model) {
  const auto* blocks = blocks_of(model);
  const bool adds_sinusoids = blocks != nullptr && is<SinusoidalPositionsConfig>(blocks->positions);
  return adds_sinusoids && !has_regions(blocks->embedding) ? EmbeddingScale::sqrt_width : EmbeddingScale::none;
}

void set_embedding_scale(ModelConfig& model, EmbeddingScale scale) {
  const auto set = [&](auto& options) {
    if constexpr (requires { options.positions; }) options.embedding.scale = scale;
  };
  std::visit(set, model);
}

std::int64_t default_slices(const ExperimentConfig& config) {
  constexpr std::int64_t features = 384 * 128, most = 8, widest = 384;
  const auto width = width_of(config.model);
  if (is<LinearConfig>(config.model) || width > widest || has_large_tables(config)) return 1;
  const auto tokens = most_batch_tokens(config) / (is_padded(config.task) ? 4 : 1);
  return std::clamp<std::int64_t>(tokens * width / features, 1, most);
}

void derive_defaults(ExperimentConfig& config, const Provenance& provenance) {
  if (!provenance.contains("train.schedule.floor")) lower_floor(config.train.schedule, config.train.learning_rate);
  auto* next_token = std::get_if<LanguageModelConfig>(&config.task);
  if (next_token != nullptr && !provenance.contains("data.tokenizer.whitespace"))
    keep_whitespace(next_token->data.tokenizer);
  if (!provenance.contains("model.embedding.scale"))
    set_embedding_scale(config.model, default_embedding_scale(config.model));
  if (!provenance.contains("train.cpu_slices")) config.train.cpu_slices = default_slices(config);
}

using Json = nlohmann::ordered_json;

namespace {

// Writes the values that differ from those of `defaults`, a section as JSON.
class ChangesWriter {
 public:
  explicit ChangesWriter(const Json& defaults) : defaults_(defaults) {}

  template <class T>
  void operator()(const char* name, T& value, const char*) {
    const auto before = defaults_.value(name, Json());
    if constexpr (has_kinds<T>) {
      add_kind(name, value, before);
    } else if constexpr (requires(JsonWriter & w) { visit(w, value); }) {
      ChangesWriter inner(before);
      visit(inner, value);
      if (!inner.json.empty()) json[name] = std::move(inner.json);
    } else {
      if (auto now = to_value(value); now != before) json[name] = std::move(now);
    }
  }
  template <class T>
  void operator()(const char* name, T& value, const Range&, const char* help) {
    (*this)(name, value, help);
  }
  template <class V, class Section>
  void section_of(const char* name, const char*, V& variant, const Section& section) {
    visit_section_of(variant, section, [&](auto& value) { (*this)(name, value, ""); });
  }

  nlohmann::json json = nlohmann::json::object();

 private:
  // Another kind than the default one is compared with the defaults of that kind.
  template <class T>
  void add_kind(const char* name, T& value, const Json& before) {
    const std::string kind(kind_of(value));
    const bool is_default = before.is_object() && before.value("kind", "") == kind;
    JsonWriter fresh;
    if (!is_default) {
      auto options = make_kind<T>(kind);
      fresh(name, *options, "");
    }
    ChangesWriter inner(is_default ? before : fresh.json.at(name));
    visit_kind(value, [&](auto& options) { visit(inner, options); });
    if (!is_default) inner.json["kind"] = kind;
    if (!inner.json.empty()) json[name] = std::move(inner.json);
  }

  const Json defaults_;
};

// How much of the validation split an evaluation sees changes nothing that is trained.
void forget_evaluated_tokens(TrainConfig& train) {
  if (auto* random = std::get_if<RandomEvaluationConfig>(&train.evaluation))
    random->tokens = RandomEvaluationConfig{}.tokens;
  else
    train.evaluation = EvaluationConfig{};
}

// A whole number as people write it, though the key takes any: 0, not 0.0.
std::string short_value(const Json& value) {
  constexpr double largest = 1e15;
  if (!value.is_number_float()) return yaml_value(value);
  const double number = value.get<double>();
  return number == std::trunc(number) && std::abs(number) < largest ? fmt::format("{:.0f}", number) : yaml_value(value);
}

void flatten(const Json& section, const std::string& prefix, std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : section.items())
    value.is_object() ? flatten(value, prefix + key + ".", values) : void(values[prefix + key] = short_value(value));
}

}  // namespace

nlohmann::json config_changes(const ExperimentConfig& config) {
  const ExperimentConfig defaults;
  // The sections `data` and `train` belong to the task and to the model: the defaults of those that were chosen.
  auto same_kinds = defaults;
  same_kinds.task = *make_kind<TaskConfig>(kind_of(config.task));
  same_kinds.model = *make_kind<ModelConfig>(kind_of(config.model));
  set_embedding_scale(same_kinds.model, default_embedding_scale(config.model));
  same_kinds.train.cpu_slices = default_slices(config);
  ChangesWriter writer(config_to_json(same_kinds));
  auto copy = config;  // visitors take what can be changed
  forget_evaluated_tokens(copy.train);
  visit(writer, copy);
  if (kind_of(config.task) != kind_of(defaults.task)) writer.json["task"]["kind"] = std::string(kind_of(config.task));
  if (kind_of(config.model) != kind_of(defaults.model))
    writer.json["model"]["kind"] = std::string(kind_of(config.model));
  return std::move(writer.json);
}

std::string config_digest(const ExperimentConfig& config) {
  constexpr std::size_t digits = 16;
  auto without_slices = config;
  without_slices.train.cpu_slices = default_slices(config);
  return sha256(json_text(config_changes(without_slices))).substr(0, digits);
}

std::map<std::string, std::string> flattened(const Json& config) {
  std::map<std::string, std::string> values;
  flatten(config, "", values);
  return values;
}

bool keeps_function(std::string_view key) {
  constexpr std::array<std::string_view, 10> keys = {
      "model.context",           "model.memory",          "model.dropout",
      "model.embedding.dropout", "model.embedding.std",   "model.carry_state",
      "model.mixer.backend",     "model.mixer.score_std", "model.feed_forward.chunks",
      "model.same_length"};
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace metaformer
