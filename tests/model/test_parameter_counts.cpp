// The number of parameters of every kind of model: by formula, of the model, and counted without memory for them.

#include "attention/mixer_support.h"
#include "config/loader.h"
#include "model/make_model.h"
#include "support/any_block.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 13, classes = 3;

std::int64_t norm_size(const TransformerConfig& model) {
  return model.width * (1 + (has_bias(model.norm) && model.bias ? 1 : 0));
}

std::int64_t norms_of(const TransformerConfig& model) { return position_of(model.norm) == NormPosition::both ? 2 : 1; }

// Of tokens; or of regions of all sizes, which have a table for each place, and a bias.
std::int64_t embeddings(const TransformerConfig& model, std::int64_t tokens) {
  const auto* regions = sequence_regions(model.embedding);
  if (regions == nullptr) return tokens * model.width;
  return regions->places() * tokens * (model.width / regions->sizes()) + model.width;
}

// Without embeddings of tokens and without a head.
std::int64_t trunk(const TransformerConfig& model, std::int64_t class_token = 0) {
  const auto d = model.width, u = model.up_width(), h = model.hidden_width(), bias = std::int64_t{model.bias};
  const auto block = parameters_by_formula(model.mixer, model.mixer_shape()) + d * u + d * h + bias * (u + d) +
                     2 * norms_of(model) * norm_size(model);
  auto total = model.layers * block;
  if (is<LearnedPositionsConfig>(model.positions)) total += (model.context + class_token) * d;
  if (const auto* t5 = std::get_if<T5PositionsConfig>(&model.positions)) total += t5->buckets * model.heads;
  if (const auto* xl = std::get_if<TransformerXlPositionsConfig>(&model.positions); xl != nullptr && xl->shared_biases)
    total += 2 * model.heads * key_width(model.mixer, model.mixer_shape());
  if (model.embedding.ngrams.order > 1) total += model.embedding.ngrams.buckets * d;
  return total + (model.layers > 0 && has_final_norm(model.norm) ? norm_size(model) : 0);
}

std::int64_t expected_of(const TransformerConfig& model, const TaskConfig& task) {
  const auto* classifier = std::get_if<ClassificationConfig>(&task);
  if (classifier == nullptr) {
    const auto tokens = vocabulary + (is<MaskedLanguageModelConfig>(task) ? 1 : 0);
    return embeddings(model, tokens) + trunk(model) + (model.embedding.tie ? 0 : vocabulary * model.width);
  }
  const auto class_token = std::int64_t{is<FirstTokenHeadConfig>(classifier->head)};
  const auto* bag = bag_options(classifier->head);
  const auto units = bag != nullptr ? bag->units : 0, buckets = bag != nullptr ? bag->buckets + 1 : 0;
  return embeddings(model, vocabulary + class_token) + trunk(model, class_token) + classes * (model.width + units + 1) +
         buckets * units + (is<MeanPooledHeadConfig>(classifier->head) ? norm_size(model) : 0);
}

std::int64_t expected_of(const EncoderDecoderConfig& model, const TaskConfig&) {
  const auto tables = (model.shared_embedding ? 1 : 2) * (vocabulary + 1) * model.width;  // with the mark
  const auto cross = parameters_by_formula(model.cross_mixer, model.cross_shape()) + norms_of(model) * norm_size(model);
  const auto head = model.embedding.tie ? 0 : (vocabulary + 1) * model.width;
  return tables + trunk(model) + trunk(model.encoder_blocks()) + model.layers * cross + head;
}

std::int64_t expected_of(const RecurrentConfig& model, const TaskConfig&) {
  const auto d = model.width, layer = model.gates() * d * (2 * d + 2);
  return vocabulary * d * (model.embedding.tie ? 1 : 2) + model.layers * layer;
}

std::int64_t expected_of(const FeedForwardModelConfig& model, const TaskConfig&) {
  const auto head = vocabulary * (1 + (model.embedding.tie ? 0 : model.hidden));
  return (vocabulary + 1) * model.width + (model.inputs() + 1) * model.hidden + head;
}

std::int64_t expected_of(const LinearConfig& model, const TaskConfig&) { return (model.buckets + 1) * classes; }

void check_count(const ExperimentConfig& config) {
  const auto expected = std::visit([&](const auto& model) { return expected_of(model, config.task); }, config.model);
  const ModelSizes sizes{.vocabulary = vocabulary, .classes = classes};
  CHECK(count_parameters(config, sizes) == expected);
  if (!is<LinearConfig>(config.model)) CHECK(count_parameters(*make_model(config, sizes)).all == expected);
}

HeadConfig max_pooled(const BagConfig& bag) {
  MaxPooledHeadConfig head;
  head.bag = bag;
  return head;
}

const std::vector<HeadConfig> every_head = {PerTokenMeanHeadConfig{}, MeanPooledHeadConfig{}, FirstTokenHeadConfig{},
                                            max_pooled(NoBagConfig{}),
                                            max_pooled(NaiveBayesBagConfig{.ngrams = 3, .buckets = 50, .units = 4})};

ExperimentConfig small_experiment(const TaskConfig& task = LanguageModelConfig{}) {
  ExperimentConfig config;
  config.task = task;
  auto& model = transformer(config);
  model.layers = 2;
  model.heads = 2;
  model.width = 12;
  model.context = 7;
  return config;
}

}  // namespace

TEST_CASE("parameters are counted by formula, for every mixer, task and head", "[parameter_counts]") {
  static const auto mixers = every_mixer();
  auto config = small_experiment(GENERATE(TaskConfig{LanguageModelConfig{}}, TaskConfig{MaskedLanguageModelConfig{}},
                                          TaskConfig{ClassificationConfig{}}));
  auto& model = transformer(config);
  model.bias = GENERATE(true, false);
  model.embedding.tie = GENERATE(true, false);
  model.norm = any_norm();
  const bool has_final = GENERATE(true, false);
  std::visit([&](auto& options) { options.final = has_final; }, model.norm);
  if (!has_final) model.positions = NoPositionsConfig{};
  if (has_final)
    model.feed_forward = GatedConfig{};
  else
    std::get<MlpConfig>(model.feed_forward).ratio = 2.6;
  const bool classifies = is<ClassificationConfig>(config.task);
  if (!model.bias) model.embedding.ngrams = {.order = 2, .buckets = 20};
  if (model.bias && classifies) model.embedding.region = SequenceRegionConfig{.shortest = 1, .longest = 2};
  for (const auto& head : every_head) {
    if (classifies) classification(config).head = head;
    for (const auto& mixer : mixers) {
      model.mixer = mixer;
      check_count(config);
    }
    if (!classifies) break;
  }
}

TEST_CASE("parameters of positions are counted by formula", "[parameter_counts]") {
  auto config = small_experiment();
  transformer(config).positions = any_positions();
  transformer(config).mixer = GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(MetricOptions{}),
                                       MixerConfig(QuadraticOptions{.form = QuadraticForm::full}));
  check_count(config);
}

TEST_CASE("parameters of models without blocks are counted by formula", "[parameter_counts]") {
  auto config = small_experiment(ClassificationConfig{});
  transformer(config).layers = 0;
  transformer(config).width = 10;
  transformer(config).embedding.region = GENERATE(RegionConfig{NoRegionConfig{}}, RegionConfig{SequenceRegionConfig{}},
                                                  RegionConfig{SequenceRegionConfig{.shortest = 1, .longest = 5}});
  classification(config).head = GENERATE(from_range(every_head));
  check_count(config);
}

TEST_CASE("parameters of an encoder and decoder are counted by formula", "[parameter_counts]") {
  const auto choice = [](const char* key, const char* value) { return fmt::format("model.{}={}", key, value); };
  const auto mixers = GENERATE(values<std::array<const char*, 3>>(
      {{"scaled_dot_product", "{kind: scaled_dot_product, qk_norm: true}", "quadratic"},
       {"metric", "{kind: metric, constraint: psd, score: distance, values: own}", "metric"},
       {"quadratic", "{kind: quadratic, qk_norm: true}", "lsh"},
       {"metric", "{kind: metric, qk_norm: true, learned_temperature: true, fixed_norm: true}", "average_pooling"},
       {"identity", "metric", "identity"}}));
  const auto config =
      default_experiment(
          {"task=sequence_to_sequence", "model.kind=encoder_decoder", "model.layers=2", "model.heads=2",
           "model.width=16", "model.context=12", "model.positions=learned", "model.encoder.layers=3",
           choice("mixer", mixers[0]), choice("cross_mixer", mixers[1]), choice("encoder.mixer", mixers[2]),
           choice("shared_embedding", GENERATE("true", "false")), choice("embedding.tie", GENERATE("true", "false")),
           choice("norm.position", GENERATE("pre", "post", "both")), choice("bias", GENERATE("true", "false"))})
          .config;
  check_count(config);
}

TEST_CASE("parameters of recurrent, feed-forward and linear models are counted by formula", "[parameter_counts]") {
  ExperimentConfig config;
  const bool tie = GENERATE(true, false);
  const auto set = [&](auto model) {
    if constexpr (requires { model.embedding; }) {
      model.embedding.tie = tie;
      model.width = 6;
    }
    if constexpr (requires { model.layers; }) model.layers = 3;
    if constexpr (requires { model.hidden; }) model.hidden = tie ? 6 : 40;
    config.model = model;
    check_count(config);
  };
  set(LstmConfig{});
  set(GruConfig{});
  set(FeedForwardModelConfig{});
  config.task = ClassificationConfig{};
  set(LinearConfig{});
}

}  // namespace metaformer
