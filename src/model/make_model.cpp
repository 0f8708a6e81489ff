#include "model/make_model.h"

#include "model/classifier.h"
#include "model/gpt.h"
#include "model/linear_model.h"

namespace metaformer {

std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes) {
  switch (config.task) {
    case TaskKind::language_model:
    case TaskKind::sort:
      return std::make_shared<Gpt>(config.model, sizes.vocabulary);
    case TaskKind::classification:
      if (config.model.kind == ModelKind::linear) return std::make_shared<LinearModel>(config.model, sizes.classes);
      return std::make_shared<Classifier>(config.model, sizes.vocabulary, sizes.classes);
  }
  return nullptr;
}

}  // namespace metaformer
