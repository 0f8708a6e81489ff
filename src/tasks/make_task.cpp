#include "tasks/make_task.h"

#include "tasks/classification_task.h"
#include "tasks/language_model_task.h"
#include "tasks/one_batch_task.h"
#include "tasks/sort_task.h"

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

std::unique_ptr<Task> make_task(const ExperimentConfig& config, bool offline, Codec codec) {
  auto task = make_whole_task(config, offline, std::move(codec));
  if (config.train.overfit_batch) return std::make_unique<OneBatchTask>(std::move(task), config.train.accumulate);
  return task;
}

}  // namespace metaformer
