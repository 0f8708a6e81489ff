// The number of parameters of every kind of model, by formula; their initial values and decay, by the specs of their
// registration.

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "config/loader.h"
#include "model/classifier.h"
#include "model/make_model.h"
#include "model/parameters.h"
#include "model/small_models.h"
#include "model/token_model.h"
#include "ops/linear.h"
#include "support/any_block.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_parameters {

namespace {

constexpr std::int64_t classes = 3;

// The numbers of parameters of mixers without scores.
struct StateMixerParameters {
  std::int64_t d, n, k, context, layer, bias;

  std::int64_t linear(std::int64_t outputs, std::int64_t inputs) const { return outputs * inputs + bias * outputs; }

  std::int64_t operator()(const auto&) const { return 0; }  // another mixer
  std::int64_t operator()(const LinearAttentionOptions& o) const {
    const auto keys = o.features == LinearFeatures::elu ? d : n * o.feature_width;
    return 2 * linear(keys, d) + 2 * linear(d, d) + (2 * keys + d) * o.convolution;
  }
  std::int64_t operator()(const RetentionOptions& o) const { return 5 * linear(d, d) + 3 * d * o.convolution + k; }
  std::int64_t operator()(const GatedLinearAttentionOptions& o) const {
    return 2 * linear(d / 2, d) + 3 * linear(d, d) + o.rank * d + o.rank * d / 2 + d / 2 + 2 * d * o.convolution + k;
  }
  std::int64_t operator()(const Mamba2Options& o) const {
    const auto inner = o.expand * d, shared = 2 * o.state;
    return 2 * linear(inner, d) + linear(shared, d) + linear(d, inner) + n * d +
           (inner + shared) * (o.convolution + (o.convolution > 0 ? 1 : 0)) + 3 * n + inner;
  }
  std::int64_t operator()(const DeltaNetOptions& o) const {
    return 4 * linear(d, d) + 3 * d * o.convolution + n * d + k;
  }
  std::int64_t operator()(const GatedDeltaNetOptions& o) const {
    return 2 * linear(d / 2, d) + 3 * linear(d, d) + 2 * d * o.convolution + 2 * (n * d + n) + k;
  }
  std::int64_t operator()(const ShortConvolutionOptions& o) const {
    return linear(3 * d, d) + d * o.convolution + linear(d, d);
  }
  std::int64_t operator()(const HyenaOptions& o) const {
    const auto inputs = (o.order + 1) * d, filters = (o.order - 1) * d, w = o.filter_width;
    return linear(inputs, d) + inputs * o.convolution + linear(d, d) + 33 * w + 2 * w * w + 3 * w + filters * w + w +
           filters;
  }
  std::int64_t operator()(const SpatialGatingOptions& o) const {
    const auto f = o.gated_width(d);
    return linear(2 * f, d) + linear(d, f) + 2 * f + context * context + context;
  }
  std::int64_t mean(AveragedValues averaged, std::int64_t tables) const {
    return tables * context * context + (averaged == AveragedValues::own ? 2 * linear(d, d) : 0);
  }
  std::int64_t operator()(const StaticOptions& o) const { return mean(o.averaged, n); }
  std::int64_t operator()(const RandomOptions& o) const { return mean(o.averaged, 0); }  // its table is not trained
  // With the smallest ranks, 32.
  std::int64_t operator()(const Rwkv7Options&) const {
    const auto low_rank = 2 * 32 * d, of_later_blocks = layer > 0 ? low_rank + d : 0;
    return 4 * linear(d, d) + 3 * low_rank + 2 * d + of_later_blocks + (6 + 3 + 2) * d;
  }
};

// The number of parameters of a mixer by docs/architecture.md, with biases, norms and positions.
std::int64_t parameters_by_formula(const MixerConfig& options, const MixerShape& shape) {
  const auto d = shape.width, n = shape.heads, k = shape.head_width();
  const auto matrices = [&](std::int64_t count) { return count * (d * d + (shape.bias ? d : 0)); };
  const auto of_positions = [&](std::int64_t key_width, std::int64_t values = 1) -> std::int64_t {
    if (const auto* shaw = std::get_if<ShawPositionsConfig>(&shape.positions))
      return (2 * shaw->max_distance + 1) * (key_width + values * k);
    const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
    return xl == nullptr ? 0 : n * key_width * (d + (xl->shared_biases ? 0 : 2));
  };
  const auto of_norms = [&](const auto& o, std::int64_t norms) -> std::int64_t {
    return o.learned_temperature ? n : o.qk_norm ? norms * k : 0;
  };
  const auto shared = [&](const auto& o) {
    return matrices(2 + (o.values == MixerValues::own ? 1 : 0) + (shape.crosses ? 1 : 0)) + of_norms(o, 1);
  };
  if (const auto* dot = std::get_if<ScaledDotProductOptions>(&options))
    return matrices(2) +
           2 * (dot->key_value_heads == 0 ? n : dot->key_value_heads) * k * (d + std::int64_t{shape.bias}) +
           of_norms(*dot, 2) + of_positions(k) + (dot->sinks ? n : 0);
  if (std::get_if<DifferentialOptions>(&options) != nullptr) return matrices(4) + 4 * k + 2 * k + of_positions(k, 2);
  if (std::get_if<LshOptions>(&options) != nullptr) return matrices(3);
  if (const auto* quadratic = std::get_if<QuadraticOptions>(&options)) {
    const auto side = quadratic->form == QuadraticForm::full ? d : k;
    return shared(*quadratic) + n * side * side + of_positions(side);
  }
  const auto* metric = std::get_if<MetricOptions>(&options);
  if (metric == nullptr)
    return std::visit(StateMixerParameters{d, n, k, shape.context, shape.layer, shape.bias}, options);
  const auto form = metric->constraint == MetricConstraint::identity   ? 0
                    : metric->constraint == MetricConstraint::diagonal ? k
                                                                       : k * (k + 1) / 2;
  return shared(*metric) + n * form + of_positions(k);
}

std::int64_t norm_size(const TransformerConfig& model) {
  return model.width * (1 + (has_bias(model.norm) && model.bias ? 1 : 0));
}

std::int64_t norms_of(const TransformerConfig& model) { return position_of(model.norm) == NormPosition::both ? 2 : 1; }

// Embeddings of tokens, or of regions of all sizes with a table for each place and a bias.
std::int64_t embeddings(const TransformerConfig& model, std::int64_t tokens) {
  const auto* regions = sequence_regions(model.embedding);
  if (regions == nullptr) return tokens * model.width;
  return regions->places() * tokens * (model.width / regions->sizes()) + model.width;
}

// All parameters except the embeddings of tokens and the head.
std::int64_t trunk(const TransformerConfig& model, std::int64_t class_token = 0) {
  const auto d = model.width, u = model.up_width(), h = model.hidden_width(), bias = std::int64_t{model.bias};
  const auto block = d * u + d * h + bias * (u + d) + 2 * norms_of(model) * norm_size(model);
  auto total = model.layers * block;
  auto shape = model.mixer_shape();
  shape.context += class_token;
  for (shape.layer = 0; shape.layer < model.layers; ++shape.layer) total += parameters_by_formula(model.mixer, shape);
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
  const auto tables = (model.shared_embedding ? 1 : 2) * (vocabulary + 1) * model.width;  // the mark is a further token
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
  transformer(config) = small_transformer(ScaledDotProductOptions{}, 12, 7);
  return config;
}

// Parameters with names and shapes that do not match their specs.
struct Odd : Layer {
  Odd() {
    add_parameter("bias", torch::zeros({3, 400}), {.init = Init::normal(0.5), .decay = Decay::matrices});
    add_parameter("table", torch::zeros(7), {.init = Init::ones(), .decay = Decay::embeddings});
    add_parameter("weight", torch::ones({4, 4}), {.init = Init::zeros()});
    add_parameter("scale", torch::zeros(900), {.init = Init::uniform(0.5)});
  }
};

TransformerConfig config_of(const MixerConfig& mixer) {
  auto config = small_transformer(mixer, 12, 9);
  config.heads = with_pairs({.width = 12, .heads = 3}, mixer).heads;
  return config;
}

}  // namespace

TEST_CASE("the number of parameters equals its formula for every mixer, task and head", "[parameter_counts]") {
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

TEST_CASE("the number of parameters of positions equals its formula", "[parameter_counts]") {
  auto config = small_experiment();
  transformer(config).positions = any_positions();
  transformer(config).mixer =
      GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(DifferentialOptions{}), MixerConfig(MetricOptions{}),
               MixerConfig(QuadraticOptions{.form = QuadraticForm::full}));
  check_count(config);
}

TEST_CASE("the number of parameters of models without blocks equals its formula", "[parameter_counts]") {
  auto config = small_experiment(ClassificationConfig{});
  transformer(config).layers = 0;
  transformer(config).width = 10;
  transformer(config).embedding.region = GENERATE(RegionConfig{NoRegionConfig{}}, RegionConfig{SequenceRegionConfig{}},
                                                  RegionConfig{SequenceRegionConfig{.shortest = 1, .longest = 5}});
  classification(config).head = GENERATE(from_range(every_head));
  check_count(config);
}

TEST_CASE("the number of parameters of an encoder and decoder equals its formula", "[parameter_counts]") {
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

TEST_CASE("the number of parameters of recurrent, feed-forward and linear models equals its formula",
          "[parameter_counts]") {
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

TEST_CASE("the initial values and decay of a parameter follow its spec, whatever its name and shape", "[specs]") {
  Odd odd;
  initialise(odd, 3, 1);
  const auto parameters = odd.named_parameters();
  CHECK(parameters["bias"].std().item<double>() == Approx(0.5).epsilon(0.1));
  CHECK(torch::equal(parameters["table"], torch::ones(7)));
  CHECK(torch::equal(parameters["weight"], torch::zeros({4, 4})));
  CHECK(parameters["scale"].abs().max().item<double>() == Approx(0.5).epsilon(0.01));
  CHECK(parameters["scale"].abs().max().item<double>() <= 0.5);
  CHECK(parameters["scale"].std().item<double>() == Approx(0.5 / std::sqrt(3)).epsilon(0.05));
  const ParameterBuffer buffer(odd);
  REQUIRE(buffer.views().size() == 4);
  CHECK(buffer.views()[0].name == "table");
  CHECK(buffer.views()[1].name == "bias");
  CHECK(buffer.views()[2].name == "weight");
  for (std::size_t i = 0; i < 3; ++i) CHECK(buffer.views()[i].decay == static_cast<Decay>(i));
}

TEST_CASE("a parameter without a spec is an error that names it", "[specs]") {
  torch::nn::Sequential modules(Linear(2, 3, /*bias=*/true), torch::nn::Linear(3, 4));
  CHECK_THROWS_WITH(specified_parameters(*modules), ContainsSubstring("1.weight"));
}

TEST_CASE("matrices decay in every model, and norms and biases do not", "[specs]") {
  auto config = config_of(any_mixer());
  config.bias = true;
  config.embedding.tie = false;
  config.embedding.ngrams = {.order = 2, .buckets = 32};
  const bool classifies = GENERATE(false, true);
  std::shared_ptr<SequenceModel> model = std::make_shared<Gpt>(config, vocabulary);
  if (classifies) model = std::make_shared<Classifier>(config, HeadConfig{}, vocabulary, classes);
  for (const auto& [name, value, spec] : specified_parameters(*model)) {
    INFO(name);
    // RWKV-7's mixtures are vectors, one for each input. By its authors' choice products of low rank do not decay
    // either.
    const bool is_of_rwkv7 = name.ends_with(".mixture") || name.ends_with(".in") || name.ends_with(".out");
    // Hyena's filter network and inputs of a softmax do not decay.
    const bool is_of_filters = name.find(".filter_") != std::string::npos;
    const bool is_table = name.ends_with(".table") && !is<SpatialGatingOptions>(config.mixer);
    CHECK((spec.decay == Decay::none) == (value.dim() < 2 || is_of_rwkv7 || is_of_filters || is_table));
    CHECK((spec.decay == Decay::embeddings) == name.ends_with("embedding.weight"));
  }
}

TEST_CASE("the matrices of the blocks are hidden matrices, with the right number of parts", "[specs]") {
  auto config = config_of(any_mixer());
  config.embedding.tie = false;
  config.feed_forward = GENERATE(FeedForwardConfig(MlpConfig{}), FeedForwardConfig(GatedConfig{}));
  Gpt model(config, vocabulary);
  for (const auto& [name, value, spec] : specified_parameters(model)) {
    INFO(name);
    const bool is_square_form = name.ends_with("form");
    const bool is_projection = name.ends_with(".weight") && value.dim() == 2 &&
                               name.find(".blocks.") != std::string::npos && spec.decay == Decay::matrices;
    CHECK((spec.hidden_matrices > 0) == (is_square_form || is_projection));
    if (is_square_form) CHECK(spec.hidden_matrices == config.heads);
    const bool packs_two = name.find("key_query.") != std::string::npos;  // in Mamba-2
    const auto* dot = std::get_if<ScaledDotProductOptions>(&config.mixer);
    // If heads share keys, queries are divided into matrices of the size of the keys.
    const bool shares_keys =
        dot != nullptr && dot->key_value_heads > 0 && name.find("query_key_value") != std::string::npos;
    const auto rows = shares_keys ? dot->key_value_heads * config.head_width() : config.width;
    const bool is_of_state = carries_state(config.mixer) && !is<ShortConvolutionOptions>(config.mixer);
    if (is_projection && name.find("mixer") != std::string::npos)
      CHECK(spec.hidden_matrices == (is_of_state ? 1 + std::int64_t{packs_two} : value.size(0) / rows));
    if (name.ends_with("up.weight")) CHECK(spec.hidden_matrices == (is<GatedConfig>(config.feed_forward) ? 2 : 1));
  }
}

TEST_CASE("a parameter that is not trained has the rate 0 and no gradient, whatever rates are set", "[specs]") {
  auto config = config_of(RandomOptions{});
  Gpt model(config, vocabulary);
  ParameterBuffer parameters(model);
  parameters.set_rates([](const auto&) { return 1.0; });
  std::int64_t fixed = 0;
  for (const auto& view : parameters.views()) {
    const bool is_table = view.name.ends_with("mixer.table");
    CHECK(view.rate == (is_table ? 0 : 1));
    CHECK(view.parameter.requires_grad() != is_table);
    fixed += is_table;
  }
  CHECK(fixed == config.layers);
}

TEST_CASE("a model draws no numbers from the library's generator", "[specs]") {
  const auto bits = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const auto before = bits();
  auto config = config_of(any_mixer());
  config.dropout = 0.3;
  config.embedding.dropout = 0.3;
  auto model = started(Gpt(config, vocabulary), 3);
  StepPasses passes(1, torch::kCPU);
  auto pass = passes.pass(0);
  const Batch batch{.ids_bc = torch::zeros({2, 9}, torch::kLong)};
  model.forward(batch, nullptr, pass).sum().backward();
  CHECK(pass.random.place() > 0);
  CHECK(torch::equal(bits(), before));
}

}  // namespace metaformer::test_parameters
