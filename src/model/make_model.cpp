#include "model/make_model.h"

#include "base/error.h"
#include "model/classifier.h"
#include "model/feed_forward_model.h"
#include "model/recurrent_model.h"
#include "model/token_model.h"

namespace metaformer {

ModelSizes sizes_of(const Codec& codec) {
  return {.vocabulary = codec.tokenizer->vocabulary_size(), .classes = static_cast<std::int64_t>(codec.labels.size())};
}

std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes) {
  const auto make = [&]<class Model>(const Model& model) -> std::shared_ptr<SequenceModel> {
    if constexpr (std::is_same_v<Model, EncoderDecoderConfig>)
      return std::make_shared<EncoderDecoder>(model, sizes.vocabulary);
    else if constexpr (std::is_base_of_v<RecurrentConfig, Model>)
      return std::make_shared<RecurrentModel>(model, sizes.vocabulary);
    else if constexpr (std::is_same_v<Model, FeedForwardModelConfig>)
      return std::make_shared<FeedForwardModel>(model, sizes.vocabulary);
    else if constexpr (std::is_same_v<Model, LinearConfig>)
      throw Error(ExitCode::usage, "model.kind: linear is no network, which is trained by steps");
    else if (is<CompressionConfig>(config.task))
      return std::make_shared<Compressor>(model, sizes.vocabulary);
    else if (is_causal(config.task))
      return std::make_shared<Gpt>(model, sizes.vocabulary);
    else if (is<MaskedLanguageModelConfig>(config.task))
      return std::make_shared<MaskedLanguageModel>(model, sizes.vocabulary);
    else
      return std::make_shared<Classifier>(model, classification(config).head, sizes.vocabulary, sizes.classes);
  };
  return std::visit(make, config.model);
}

std::int64_t count_parameters(const ExperimentConfig& config, const ModelSizes& sizes) {
  if (const auto* linear = std::get_if<LinearConfig>(&config.model)) return (linear->buckets + 1) * sizes.classes;
  const MetaModules without_memory;
  return count_parameters(*make_model(config, sizes)).all;
}

}  // namespace metaformer
