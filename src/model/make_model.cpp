#include "model/make_model.h"

#include "model/classifier.h"
#include "model/gpt.h"

namespace metaformer {

ModelSizes sizes_of(const Codec& codec) {
  return {.vocabulary = codec.tokenizer->vocabulary_size(), .classes = static_cast<std::int64_t>(codec.labels.size())};
}

std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes) {
  const auto& network = transformer(config);
  if (!is<ClassificationConfig>(config.task)) return std::make_shared<Gpt>(network, sizes.vocabulary);
  return std::make_shared<Classifier>(network, classification(config).head, sizes.vocabulary, sizes.classes);
}

}  // namespace metaformer
