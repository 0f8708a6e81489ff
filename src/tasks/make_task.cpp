#include "tasks/make_task.h"

#include "tasks/classification_task.h"
#include "tasks/language_model_task.h"
#include "tasks/list_task.h"
#include "tasks/masked_language_model_task.h"
#include "tasks/neighbouring_words_task.h"
#include "tasks/one_batch_stream.h"
#include "tasks/sequence_to_sequence_task.h"

namespace metaformer {

namespace {

Task make_whole_task(const ExperimentConfig& config, bool offline, Codec codec) {
  if (list_task(config.task)) return make_list_task(config);
  if (is<ClassificationConfig>(config.task)) return make_classification_task(config, offline, std::move(codec));
  if (is<MaskedLanguageModelConfig>(config.task))
    return make_masked_language_model_task(config, offline, std::move(codec));
  if (is<NeighbouringWordsConfig>(config.task)) return make_neighbouring_words_task(config, offline, std::move(codec));
  if (is<SequenceToSequenceConfig>(config.task))
    return make_sequence_to_sequence_task(config, offline, std::move(codec));
  return make_language_model_task(config, offline, std::move(codec));
}

}  // namespace

Task make_task(const ExperimentConfig& config, bool offline, Codec codec) {
  auto task = make_whole_task(config, offline, std::move(codec));
  if (config.train.overfit_batch)
    task.batches = std::make_shared<OneBatchStream>(task.batches, config.train.accumulate);
  return task;
}

}  // namespace metaformer
