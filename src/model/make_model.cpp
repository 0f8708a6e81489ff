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

namespace {

struct Maker {
  using Model = std::shared_ptr<SequenceModel>;

  Model operator()(const TransformerConfig& model) const {
    if (is_causal(config.task)) return std::make_shared<Gpt>(model, sizes.vocabulary);
    if (is<MaskedLanguageModelConfig>(config.task))
      return std::make_shared<MaskedLanguageModel>(model, sizes.vocabulary);
    return std::make_shared<Classifier>(model, classification(config).head, sizes.vocabulary, sizes.classes);
  }
  Model operator()(const EncoderDecoderConfig& model) const {
    return std::make_shared<EncoderDecoder>(model, sizes.vocabulary);
  }
  Model operator()(const RecurrentConfig& model) const {
    return std::make_shared<RecurrentModel>(model, sizes.vocabulary);
  }
  Model operator()(const FeedForwardModelConfig& model) const {
    return std::make_shared<FeedForwardModel>(model, sizes.vocabulary);
  }
  Model operator()(const LinearConfig&) const {
    throw Error(ExitCode::usage, "model.kind: linear is no network, which is trained by steps");
  }

  const ExperimentConfig& config;
  const ModelSizes& sizes;
};

}  // namespace

std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes) {
  return std::visit(Maker{config, sizes}, config.model);
}

std::int64_t count_parameters(const ExperimentConfig& config, const ModelSizes& sizes) {
  if (const auto* linear = std::get_if<LinearConfig>(&config.model)) return (linear->buckets + 1) * sizes.classes;
  const MetaModules without_memory;
  return count_parameters(*make_model(config, sizes)).all;
}

}  // namespace metaformer
