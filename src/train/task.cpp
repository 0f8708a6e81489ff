#include "train/task.h"

#include "train/language_model_task.h"

namespace metaformer {

std::unique_ptr<Task> make_task(const ExperimentConfig& config, bool offline, std::unique_ptr<Tokenizer> tokenizer) {
  switch (config.task) {
    case TaskKind::language_model:
      return std::make_unique<LanguageModelTask>(config, offline, std::move(tokenizer));
  }
  return nullptr;
}

}  // namespace metaformer
