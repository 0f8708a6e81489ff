// Keys that are set and have no effect.

#include "config/loader.h"
#include "config/writer.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

TEST_CASE("a key without effect is an error that names it and why", "[config]") {
  const std::string classifier = "task=classification";
  const auto [overrides, key, why] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"train.baselines=false"}, "train.baselines", "has no meaning for task language_model"},
      {{"task=sort", "train.baselines=false"}, "train.baselines", "has no meaning for task sort"},
      {{"model.ngram_embedding.buckets=512"}, "model.ngram_embedding.buckets", "model.ngram_embedding.order 1"},
      {{"train.eval_batches=3"}, "train.eval_batches", "train.eval_mode whole"},
      {{"train.schedule=constant", "train.min_learning_rate=0"}, "train.min_learning_rate", "train.schedule constant"},
      {{"train.rollback_factor=0.1"}, "train.rollback_factor", "train.on_divergence stop"},
      {{"train.max_rollbacks=1"}, "train.max_rollbacks", "train.on_divergence stop"},
      {{"train.on_spike=skip"}, "train.on_spike", "train.spike_threshold 0"},
      {{"model.norm.position=post", "model.norm.final=false"}, "model.norm.final", "model.norm.position post"},
      {{"task=classification", "model.linear.ngrams=1"}, "model.linear.ngrams", "model.kind transformer"},
      {{"model.linear.cost=2"}, "model.linear.cost", "model.kind transformer"},
      {{"task=classification", "model.kind=linear", "model.layers=2"}, "model.layers", "model.kind linear"},
      {{"task=classification", "model.kind=linear", "model.mixer.kind=identity"},
       "model.mixer.kind",
       "model.kind linear"},
      {{"task=classification", "model.kind=linear", "train.learning_rate=1"},
       "train.learning_rate",
       "model.kind linear"},
      {{"task=classification", "model.kind=linear", "train.steps=5"}, "train.steps", "model.kind linear"},
      {{"task=classification", "data.corpus=imdb", "data.format=csv"}, "data.format", "data.corpus imdb"},
      {{"task=classification", "data.corpus=imdb", "data.header=absent"}, "data.header", "data.corpus imdb"},
      {{"task=classification", "data.corpus=imdb", "data.text_field=review"}, "data.text_field", "data.corpus imdb"},
      {{"task=classification", "data.corpus=imdb", "data.label_field=2"}, "data.label_field", "data.corpus imdb"},
      {{"task=classification", "data.corpus=imdb", "data.test_path=x"}, "data.test_path", "data.corpus imdb"},
      {{"task=classification", "data.corpus=imdb", "data.rating.positive_from=7"},
       "data.rating.positive_from",
       "data.corpus imdb"},
      {{"data.corpus=tinyshakespear"}, "data.corpus", "did you mean 'tinyshakespeare'?"},
      {{"task=classification", "data.corpus=imbd"}, "data.corpus", "did you mean 'imdb'?"},
      {{"data.corpus=imdb"}, "data.corpus", "for task classification"},
      {{"task=classification", "data.rating.positive_from=nan"}, "data.rating.positive_from", "out of range"},
      {{"task=classification", "data.rating={positive_from: 4, highest: inf}"}, "data.rating.highest", "out of range"},
      {{"train.clip=1e308"}, "train.clip", "must be at least 0 and at most 1e+30"},
      {{"train.learning_rate=1e39"}, "train.learning_rate", "must be above 0 and at most 1e+30"},
  }));
  const auto [code, message] = failure([&] { default_experiment(overrides); });
  INFO(message);
  CHECK(code == ExitCode::usage);
  CHECK(message.starts_with("--set " + key.substr(0, key.find('.'))));
  CHECK_THAT(message, ContainsSubstring(": " + key + ": ") && ContainsSubstring(why));
}

TEST_CASE("the same keys are accepted where they have an effect", "[config]") {
  const auto overrides = GENERATE(
      std::vector<std::string>{"task=classification", "train.baselines=false"},
      std::vector<std::string>{"task=classification", "model.ngram_embedding={order: 2, buckets: 512}"},
      std::vector<std::string>{"train.eval_mode=random", "train.eval_batches=3"},
      std::vector<std::string>{"train.on_divergence=rollback", "train.rollback_factor=0.1", "train.max_rollbacks=1"},
      std::vector<std::string>{"train.spike_threshold=6", "train.on_spike=skip"},
      std::vector<std::string>{"task=classification", "model.kind=linear", "model.linear.ngrams=1"},
      std::vector<std::string>{"task=classification", "model.kind=linear", "model.context=99", "train.batch_size=3"},
      std::vector<std::string>{"task=classification", "data.corpus=imdb", "data.malformed_limit=0.1"},
      std::vector<std::string>{"train.schedule=constant"}, std::vector<std::string>{"train.clip=1e20"});
  const auto config = default_experiment(overrides).config;
  // The resolved config names every key and loads again.
  const TemporaryFolder folder;
  const auto again = load_experiment(folder.write("again.yaml", config_to_yaml(config)).string()).config;
  CHECK(config_to_json(again) == config_to_json(config));
}

TEST_CASE("a model.kind that differs from the lower layers' drops what is of the other kind", "[config]") {
  const TemporaryFolder folder;
  folder.write("network.yaml",
               "task: classification\nmodel: {layers: 1, width: 64, context: 99, mixer: {kind: identity}}\n"
               "train: {steps: 7, batch_size: 3, learning_rate: 0.5}\n");
  const auto network = (folder / "network.yaml").string();
  const auto linear = load_experiment(network, {"model.kind=linear", "model.linear.ngrams=3"}).config;
  CHECK(linear.model.kind == ModelKind::linear);
  CHECK(linear.model.context == 99);
  CHECK(linear.train.batch_size == 3);
  CHECK(linear.model.linear.ngrams == 3);
  CHECK(linear.train.steps == TrainConfig{}.steps);
  CHECK(linear.model.layers == ModelConfig{}.layers);
  CHECK(kind_of(linear.model.mixer) == kind_of(ModelConfig{}.mixer));
  // In the layer that chooses the kind, or above it, they are mistakes.
  CHECK(failure([&] { load_experiment(network, {"model.kind=linear", "train.steps=9"}); }).first == ExitCode::usage);
  const auto back = load_experiment(
      folder.write("linear.yaml", "task: classification\nmodel: {kind: linear, linear: {ngrams: 1}}\n").string(),
      {"model.kind=transformer"});
  CHECK(back.config.model.linear.ngrams == LinearConfig{}.ngrams);
}

}  // namespace metaformer
