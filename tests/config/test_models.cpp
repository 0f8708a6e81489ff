// Sections of a model and its task: kinds within kinds, and what follows from them.

#include "config/complaint.h"
#include "config/loader.h"

namespace metaformer {

namespace {

TransformerConfig model_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return transformer(config_of("model: {" + yaml + "}\n", overrides));
}

}  // namespace

TEST_CASE("an activation is a kind, or its name", "[config]") {
  const auto beta_of = [](const TransformerConfig& model) {
    return std::get<SiluConfig>(std::get<MlpConfig>(model.feed_forward).activation).beta;
  };
  CHECK(beta_of(model_of("feed_forward: {activation: silu}")) == 1);
  CHECK(beta_of(model_of("feed_forward: {activation: {kind: silu, beta: 2}}")) == 2);
  const auto plain = config_to_json(config_of(""));
  CHECK(config_to_json(config_of("model: {feed_forward: {activation: gelu, ratio: 4}}\n")) == plain);
  CHECK_THAT(complaint("", {"model.feed_forward.activation=swish"}),
             ContainsSubstring("model.feed_forward.activation: unknown value 'swish'; expected gelu"));
  CHECK_THAT(complaint("", {"model.feed_forward.activation.beta=2"}),
             ContainsSubstring("model.feed_forward.activation.beta: unknown key") && ContainsSubstring("silu"));
}

TEST_CASE("a feed-forward branch of another kind has that kind's activation and width", "[config]") {
  const auto gated = model_of("feed_forward: {activation: relu, ratio: 2}", {"model.feed_forward=gated"});
  CHECK(is<SiluConfig>(std::get<GatedConfig>(gated.feed_forward).activation));
  CHECK(gated.hidden_width() == 344);  // 8/3 of 128 is 341.3
  CHECK(gated.up_width() == 688);
  CHECK(model_of("width: 4, feed_forward: {kind: gated, ratio: 0.1}").hidden_width() == 8);
  CHECK(model_of("feed_forward: {ratio: 2.6}").hidden_width() == 333);
  CHECK_THAT(complaint("", {"model.feed_forward={kind: gated, output_activation: true}"}),
             ContainsSubstring("model.feed_forward.output_activation: unknown key") && ContainsSubstring("mlp"));
}

TEST_CASE("every norm has its position, final norm and epsilon", "[config]") {
  const auto norm = model_of("norm: {kind: rms_norm, position: both, epsilon: 1e-6}").norm;
  CHECK(is<RmsNormConfig>(norm));
  CHECK(position_of(norm) == NormPosition::both);
  CHECK(epsilon_of(norm) == 1e-6);
  CHECK(has_final_norm(norm));
  CHECK_FALSE(has_final_norm(model_of("norm: {position: both, final: false}").norm));
  CHECK_FALSE(has_final_norm(model_of("norm: {kind: rms_norm, position: post}").norm));
  CHECK_THAT(complaint("", {"model.norm={kind: rms_norm, position: post, final: false}"}),
             ContainsSubstring("model.norm.final: has no effect with model.norm.position post"));
  CHECK_THAT(complaint("", {"model.norm.epsilon=0"}), ContainsSubstring("model.norm.epsilon: 0 is out of range"));
}

TEST_CASE("a region is a kind with sizes, and none without", "[config]") {
  const auto options_of = [](const std::vector<std::string>& more) {
    return *sequence_regions(transformer(config_of("", pooled_and(more))).embedding);
  };
  CHECK(options_of({}).sizes() == 2);
  CHECK(options_of({"model.embedding.region.longest=5", "model.width=64"}).sizes() == 4);
  CHECK(sequence_regions(TransformerConfig{}.embedding) == nullptr);
  CHECK_FALSE(has_regions(TransformerConfig{}.embedding));
  CHECK_THAT(complaint("", {"task=classification", "model.embedding.region.longest=4"}),
             ContainsSubstring("model.embedding.region.longest: unknown key for kind 'none'; only") &&
                 ContainsSubstring("sequence"));
}

TEST_CASE("the head that takes maxima has options, and its bag has its own", "[config]") {
  const auto config = config_of("", pooled_and({"task.head={kind: max_pooled, dropout: 0.5, bag: naive_bayes}"}));
  CHECK(std::get<MaxPooledHeadConfig>(classification(config).head).dropout == 0.5);
  CHECK(bag_options(classification(config).head)->units == 20);
  CHECK(bag_options(classification(config_of("", pooled_and({}))).head) == nullptr);
  CHECK_THAT(complaint("", pooled_and({"task.head.bag.units=3"})),
             ContainsSubstring("task.head.bag.units: unknown key for kind 'none'"));
  CHECK_THAT(
      complaint("", {"task=classification", "task.head.dropout=0.5"}),
      ContainsSubstring("task.head.dropout: unknown key for kind 'mean_pooled'") && ContainsSubstring("max_pooled"));
}

TEST_CASE("a masked language model takes whole words of pieces, dropped spaces, and either loss", "[config][masking]") {
  const auto config =
      default_experiment(masked({"task.whole_words=true", "data.tokenizer={kind: bpe, whitespace: dropped}",
                                 "task.loss=sequence", "task.fraction=1", "task.masked=0.5", "task.random=0.5"}))
          .config;
  const auto& task = std::get<MaskedLanguageModelConfig>(config.task);
  CHECK(task.whole_words);
  CHECK(task.loss == LossUnit::sequence);
  CHECK_FALSE(is_causal(config.task));
  CHECK(text_data_of(config.task) == &task.data);
}

TEST_CASE("a text keeps all of its keys when it becomes that of a masked language model", "[config][masking]") {
  const TemporaryFolder folder;
  const auto file = folder.write("a.yaml",
                                 "task: {kind: language_model, sample_interval: 5}\n"
                                 "data: {separate_documents: true, tokenizer: byte}\n");
  const auto experiment = load_experiment(file.string(), {"task=masked_language_model"});
  const auto& data = std::get<MaskedLanguageModelConfig>(experiment.config.task).data;
  CHECK(data.separate_documents);
  CHECK(is<ByteTokenizerOptions>(data.tokenizer));
  CHECK(experiment.provenance.contains("data.separate_documents"));
  CHECK_FALSE(experiment.provenance.contains("task.sample_interval"));
}

TEST_CASE("another kind of network keeps the context and the keys of the training", "[config]") {
  const auto config =
      default_experiment({"model.context=48", "train.steps=7", "train.learning_rate=0.5", "model=lstm"}).config;
  CHECK(std::get<LstmConfig>(config.model).context == 48);
  CHECK(std::get<LstmConfig>(config.model).layers == 2);
  CHECK(config.train.steps == 7);
  CHECK(config.train.learning_rate == 0.5);
}

TEST_CASE("what models say of their width, their order and what they remember", "[config]") {
  CHECK(width_of(TransformerConfig{.width = 24}) == 24);
  CHECK(width_of(FeedForwardModelConfig{.width = 5}) == 5);
  CHECK(width_of(LinearConfig{}) == 0);
  LstmConfig lstm;
  lstm.context = 33;
  CHECK(width_of(lstm) == 128);
  CHECK(tokens_before_segment(lstm) == 0);
  lstm.carry_state = true;
  CHECK(tokens_before_segment(lstm) == 33);
  CHECK(order_key(lstm) == "model.carry_state");
  CHECK(tokens_before_segment(TransformerConfig{.memory = 12}) == 12);
  CHECK(order_key(TransformerConfig{}) == "model.memory");
  CHECK(tokens_before_segment(FeedForwardModelConfig{}) == 0);
  CHECK(recurrent(ModelConfig(GruConfig{}))->gates() == 3);
  CHECK(recurrent(ModelConfig(LstmConfig{}))->gates() == 4);
  CHECK(recurrent(ModelConfig(TransformerConfig{})) == nullptr);
}

TEST_CASE("a recurrent model is warned of what a transformer is", "[config]") {
  const auto experiment = default_experiment({"model=lstm", "train.steps=50", "train.loss_chunks=5000"});
  const auto warnings = config_warnings(experiment.config, experiment.provenance);
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], ContainsSubstring("all of the training is warm-up"));
  CHECK_THAT(warnings[1], ContainsSubstring("5000 is above the 768 tokens of a batch"));
}

}  // namespace metaformer
