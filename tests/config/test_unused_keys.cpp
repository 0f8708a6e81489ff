// Keys that are set and have no effect.

#include "config/loader.h"
#include "config/writer.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

TEST_CASE("a key without effect is an error that names it and why", "[config]") {
  const auto [overrides, key, why] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"model.embedding.scale=log_count_ratio"}, "model.embedding.scale", "has no meaning for task language_model"},
      {{"task=sort", "model.embedding.ngrams.order=2"}, "model.embedding.ngrams.order", "has no meaning for task sort"},
      {{"task=classification", "model.embedding.tie=false"},
       "model.embedding.tie",
       "has no meaning for task classification"},
      {{"task=classification", "model.embedding.ngrams.buckets=512"},
       "model.embedding.ngrams.buckets",
       "model.embedding.ngrams.order 1"},
      {{"train.divergence.spikes.action=skip"},
       "train.divergence.spikes.action",
       "train.divergence.spikes.threshold 0"},
      {{"model.norm.position=post", "model.norm.final=false"}, "model.norm.final", "model.norm.position post"},
      {{"model=linear"}, "model.kind", "linear has no meaning for task language_model"},
      {{"task=classification", "model=linear", "task.label_smoothing=0.1"}, "task.label_smoothing", "model linear"},
      {{"task=classification", "model=linear", "task.head=first_token"}, "task.head.kind", "model linear"},
      {{"task=classification", "model=linear", "task.baselines=false"}, "task.baselines", "model linear"},
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
      std::vector<std::string>{"task=classification", "model.embedding.ngrams={order: 2, buckets: 512}"},
      std::vector<std::string>{"model.embedding.tie=false"},
      std::vector<std::string>{"train.divergence.spikes={threshold: 6, action: skip}"},
      std::vector<std::string>{"task=classification", "model=linear", "model.ngrams=1", "task.truncation=tail"},
      std::vector<std::string>{"task=classification", "model=linear", "model.context=99", "train.batch_size=3"},
      std::vector<std::string>{"task=classification", "data.corpus=imdb", "data.malformed_limit=0.1"},
      std::vector<std::string>{"task=classification", "data.corpus=imdb", "data.extra_path=x",
                               "data.text_field=review"},
      std::vector<std::string>{"train.schedule=constant"}, std::vector<std::string>{"train.clip=1e20"});
  const auto config = default_experiment(overrides).config;
  // The resolved config names every key and loads again.
  const TemporaryFolder folder;
  const auto again = load_experiment(folder.write("again.yaml", config_to_yaml(config)).string()).config;
  CHECK(config_to_json(again) == config_to_json(config));
}

}  // namespace metaformer
