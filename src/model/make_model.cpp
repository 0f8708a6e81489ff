#include "model/make_model.h"

#include "model/classifier.h"
#include "model/gpt.h"

namespace metaformer {

std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes) {
  switch (config.task) {
    case TaskKind::language_model:
    case TaskKind::sort:
      return std::make_shared<Gpt>(config.model, sizes.vocabulary);
    case TaskKind::classification:
      return std::make_shared<Classifier>(config.model, sizes.vocabulary, sizes.classes);
  }
  return nullptr;
}

}  // namespace metaformer
