#include "train/task.h"

#include "train/classification_task.h"
#include "train/language_model_task.h"
#include "train/one_batch_task.h"
#include "train/sort_task.h"

namespace metaformer {

namespace {

std::unique_ptr<Task> make_whole_task(const ExperimentConfig& config, bool offline, Codec codec) {
  switch (config.task) {
    case TaskKind::language_model:
      return std::make_unique<LanguageModelTask>(config, offline, std::move(codec));
    case TaskKind::classification:
      return std::make_unique<ClassificationTask>(config, offline, std::move(codec));
    case TaskKind::sort:
      return std::make_unique<SortTask>(config);
  }
  return nullptr;
}

}  // namespace

nlohmann::ordered_json without_paths(const nlohmann::ordered_json& description) {
  if (!description.is_object()) return description;
  nlohmann::ordered_json kept;
  for (const auto& [key, value] : description.items())
    if (key != "path") kept[key] = without_paths(value);
  return kept;
}

std::unique_ptr<Task> make_task(const ExperimentConfig& config, bool offline, Codec codec) {
  auto task = make_whole_task(config, offline, std::move(codec));
  if (config.train.overfit_batch) return std::make_unique<OneBatchTask>(std::move(task), config.train.accumulate);
  return task;
}

}  // namespace metaformer
