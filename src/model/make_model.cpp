#include "model/make_model.h"

#include "base/error.h"
#include "model/classifier.h"
#include "model/encoder_decoder.h"
#include "model/feed_forward_model.h"
#include "model/recurrent_model.h"
#include "model/token_model.h"

namespace metaformer {

ModelSizes sizes_of(const Codec& codec) {
  return {.vocabulary = codec.tokenizer->vocabulary_size(), .classes = static_cast<std::int64_t>(codec.labels.size())};
}

namespace {

std::shared_ptr<SequenceModel> make(const TransformerConfig& model, const ExperimentConfig& config,
                                    const ModelSizes& sizes) {
  if (is_causal(config.task)) return std::make_shared<Gpt>(model, sizes.vocabulary);
  if (is<MaskedLanguageModelConfig>(config.task)) return std::make_shared<MaskedLanguageModel>(model, sizes.vocabulary);
  return std::make_shared<Classifier>(model, classification(config).head, sizes.vocabulary, sizes.classes);
}

std::shared_ptr<SequenceModel> make(const EncoderDecoderConfig& model, const ExperimentConfig&,
                                    const ModelSizes& sizes) {
  return std::make_shared<EncoderDecoder>(model, sizes.vocabulary);
}

std::shared_ptr<SequenceModel> make(const RecurrentConfig& model, const ExperimentConfig&, const ModelSizes& sizes) {
  return std::make_shared<RecurrentModel>(model, sizes.vocabulary);
}

std::shared_ptr<SequenceModel> make(const FeedForwardModelConfig& model, const ExperimentConfig&,
                                    const ModelSizes& sizes) {
  return std::make_shared<FeedForwardModel>(model, sizes.vocabulary);
}

std::shared_ptr<SequenceModel> make(const LinearConfig&, const ExperimentConfig&, const ModelSizes&) {
  throw Error(ExitCode::usage, "model.kind: linear is no network, which is trained by steps");
}

}  // namespace

std::shared_ptr<SequenceModel> make_model(const ExperimentConfig& config, const ModelSizes& sizes) {
  return std::visit([&](const auto& model) { return make(model, config, sizes); }, config.model);
}

}  // namespace metaformer
