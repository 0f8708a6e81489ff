#include "config_reader/kind_switch.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "config/writer.h"

namespace metaformer {

namespace {

// The kind that a source gives to a section, as the kind's defaults; nothing where it names none that exists.
template <class V>
std::optional<V> named_kind(const ConfigNode& source, std::string_view section) {
  const auto* node = source.find(section);
  if (node != nullptr && node->kind == ConfigNode::Kind::map) node = node->find("kind");
  if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return std::nullopt;
  return make_kind<V>(node->scalar);
}

void forget_section(Provenance& provenance, const std::string& section) {
  std::erase_if(provenance, [&](const auto& entry) { return entry.first.starts_with(section + "."); });
}

bool has_key(const nlohmann::ordered_json& section, std::string_view path) {
  const auto dot = path.find('.');
  const auto found = section.find(std::string(path.substr(0, dot)));
  if (found == section.end()) return false;
  return dot == std::string_view::npos || (found->is_object() && has_key(*found, path.substr(dot + 1)));
}

void forget_absent_keys(const ExperimentConfig& config, Provenance& provenance) {
  const auto json = config_to_json(config);
  std::erase_if(provenance, [&](const auto& entry) { return !has_key(json, entry.first); });
}

bool names_tokenizer(const Provenance& provenance) {
  return std::any_of(provenance.begin(), provenance.end(),
                     [](const auto& entry) { return entry.first.starts_with("data.tokenizer."); });
}

// Each task has its own default tokenizer.
void keep_data(const DataConfig& before, DataConfig& now, const Provenance& provenance) {
  const auto usual = std::exchange(now, before);
  if (!names_tokenizer(provenance)) now.tokenizer = usual.tokenizer;
}

void switch_task(TaskConfig task, ExperimentConfig& config, Provenance& provenance) {
  if (const auto* before = data_of(config))
    std::visit(
        [&](auto& now) {
          if constexpr (requires { now.data; }) keep_data(*before, now.data, provenance);
        },
        task);
  const auto* before = text_data_of(config.task);
  if (auto* now = text_data_of(task); before != nullptr && now != nullptr) *now = *before;
  config.task = std::move(task);
  forget_section(provenance, "task");
}

// The options of a classifier that a linear model does not have are reset, too.
void reset_network_options(ClassificationConfig& task, Provenance& provenance) {
  const auto before = std::exchange(task, ClassificationConfig{});
  task.truncation = before.truncation;
  task.selection_metric = before.selection_metric;
  task.data = before.data;
  std::erase_if(provenance, [](const auto& entry) {
    const auto& key = entry.first;
    return key.starts_with("task.") && key != "task.kind" && key != "task.truncation" && key != "task.selection_metric";
  });
}

void switch_model(ModelConfig model, ExperimentConfig& config, Provenance& provenance) {
  std::visit([&](auto& now) { now.context = context_of(config.model); }, model);
  config.model = std::move(model);
  std::erase_if(provenance,
                [](const auto& entry) { return entry.first.starts_with("model.") && entry.first != "model.context"; });
  if (!is<LinearConfig>(config.model)) return;
  const LinearTrainConfig kept = config.train;
  config.train = TrainConfig{};
  static_cast<LinearTrainConfig&>(config.train) = kept;
  if (auto* task = std::get_if<ClassificationConfig>(&config.task)) reset_network_options(*task, provenance);
}

}  // namespace

void switch_kinds(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance) {
  auto task = named_kind<TaskConfig>(source, "task");
  auto model = named_kind<ModelConfig>(source, "model");
  const bool other_task = task && task->index() != config.task.index();
  const bool other_model = model && model->index() != config.model.index();
  if (other_task) switch_task(std::move(*task), config, provenance);
  if (other_model) switch_model(std::move(*model), config, provenance);
  if (other_task || other_model) forget_absent_keys(config, provenance);
}

}  // namespace metaformer
