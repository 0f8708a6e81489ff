// Configs of recurrent and feed-forward language models.

#include "config/check.h"
#include "config/loader.h"
#include "config/writer.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

TEST_CASE("recurrent and feed-forward models that do not fit say what does", "[config]") {
  const auto [overrides, key, what] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"task=classification", "model=lstm"},
       "model.kind",
       "lstm predicts tokens from those before them, and task classification needs a model that sees a whole text"},
      {{"task=classification", "model=gru"}, "model.kind", "gru predicts tokens from those before them"},
      {{"task=classification", "model=feed_forward"}, "model.kind", "feed_forward predicts tokens from those before"},
      {{"task=masked_language_model", "model=lstm"}, "model.kind", "task masked_language_model needs a model that"},
      {{"model=lstm", "model.carry_state=true", "task=sort", "model.context=11"},
       "model.carry_state",
       "true has no meaning for task sort: it is for texts that are read in order, as language_model does"},
      {{"model=gru", "model.carry_state=true", "train.evaluation=random"},
       "train.evaluation",
       "'random' batches have nothing before them to remember: set it to limited or whole"},
      {{"model=lstm", "model.carry_state=true", "train.overfit_batch=true"},
       "train.overfit_batch",
       "with model.carry_state a batch goes on from the one before it: set model.carry_state to false"},
      {{"model=lstm", "model.carry_state=true", "data.packing=spfhp"},
       "data.packing",
       "model.carry_state needs what was before them: set data.packing to none, or model.carry_state to false"},
      {{"model=lstm", "model.embedding.scale=log_count_ratio"},
       "model.embedding.scale",
       "'log_count_ratio' has no meaning for task language_model"},
      {{"model=lstm", "model.embedding.ngrams.order=2"},
       "model.embedding.ngrams.order",
       "has no meaning for task language_model"},
      {{"model=lstm", "model.heads=2"},
       "model.heads",
       "unknown key for model 'lstm'; only model: transformer or encoder_decoder have it"},
      {{"model.carry_state=true"}, "model.carry_state", "only model: lstm or gru"},
      {{"model=feed_forward", "model.layers=2"},
       "model.layers",
       "unknown key for model 'feed_forward'; only model: transformer, encoder_decoder, lstm or gru"},
      {{"model=feed_forward", "model.embedding.tie=true"},
       "model.embedding.tie",
       "only where model.hidden, 256, is model.width, 64"},
      {{"model=feed_forward", "model.window=0"}, "model.window", "0 is out of range; must be at least 1"},
      {{"model=lstmm"},
       "model",
       "expected transformer, encoder_decoder, lstm, gru, feed_forward or linear; did you mean 'lstm'?"},
  }));
  INFO(key);
  const auto [code, message] = failure([&, given = overrides] { default_experiment(given); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring(key + ": ") && ContainsSubstring(what));
}

TEST_CASE("recurrent and feed-forward models are accepted where they have a meaning, and read back", "[config]") {
  const auto overrides = GENERATE(
      std::vector<std::string>{"model={kind: lstm, layers: 1, width: 32, carry_state: true, dropout: 0.5}"},
      std::vector<std::string>{"model={kind: gru, embedding: {tie: false, scale: sqrt_width, dropout: 0.1, std: 0.1}}"},
      std::vector<std::string>{"model={kind: feed_forward, window: 3}"},
      std::vector<std::string>{"model={kind: feed_forward, hidden: 64, embedding: {tie: true}}", "train.loss_chunks=3"},
      std::vector<std::string>{"model=lstm", "task=sort"},
      std::vector<std::string>{"model=feed_forward", "task=copy", "model.context=255"},
      std::vector<std::string>{"model=gru", "data.packing=spfhp", "train.evaluation=random"});
  const auto config = default_experiment(overrides).config;
  // The resolved config names every key and loads again.
  const TemporaryFolder folder;
  const auto again = load_experiment(folder.write("again.yaml", config_to_yaml(config)).string()).config;
  CHECK(config_to_json(again) == config_to_json(config));
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
