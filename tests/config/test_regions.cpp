// Configs of classifiers that read regions of tokens.

#include "config/complaint.h"
#include "config/writer.h"
#include "support/failure.h"

namespace metaformer {

namespace {

const std::vector<std::string> pooled = {"task={kind: classification, head: max_pooled}",
                                         "model={layers: 0, positions: none, embedding: {region: sequence}}"};

std::vector<std::string> pooled_and(std::vector<std::string> more) {
  more.insert(more.begin(), pooled.begin(), pooled.end());
  return more;
}

}  // namespace

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
  CHECK(bag_options(classification(config_of("", pooled)).head) == nullptr);
  CHECK_THAT(complaint("", pooled_and({"task.head.bag.units=3"})),
             ContainsSubstring("task.head.bag.units: unknown key for kind 'none'"));
  CHECK_THAT(
      complaint("", {"task=classification", "task.head.dropout=0.5"}),
      ContainsSubstring("task.head.dropout: unknown key for kind 'mean_pooled'") && ContainsSubstring("max_pooled"));
}

TEST_CASE("keys that do not go with regions or without blocks are errors that say so", "[config]") {
  const auto [overrides, key, why] = GENERATE(table<std::vector<std::string>, std::string, std::string>({
      {{"model.embedding.region=sequence"}, "model.embedding.region.kind", "has no meaning for task language_model"},
      {pooled_and({"model.embedding.region={kind: sequence, shortest: 4}"}), "model.embedding.region.shortest",
       "4 is above model.embedding.region.longest 3"},
      {pooled_and({"model.width=99"}), "model.width", "99 cannot be divided equally among 2 sizes"},
      {pooled_and({"model.embedding.ngrams.order=2"}), "model.embedding.ngrams.order", "model.embedding.region"},
      {pooled_and({"model.embedding.scale=log_count_ratio"}), "model.embedding.scale", "model.embedding.region"},
      {{"model.layers=0"}, "model.layers", "0 is for classification"},
      {pooled_and({"task.head=first_token"}), "model.layers", "lets the class token see nothing"},
      {pooled_and({"model.positions=learned"}), "model.positions", "'learned' says nothing with model.layers 0"},
      {pooled_and({"model.mixer=quadratic"}), "model.mixer.kind", "has no effect with model.layers 0"},
      {pooled_and({"model.heads=2"}), "model.heads", "has no effect with model.layers 0"},
      {pooled_and({"model.feed_forward=gated"}), "model.feed_forward.kind", "has no effect with model.layers 0"},
      {pooled_and({"model.norm=rms_norm"}), "model.norm.kind", "task.head has no norm"},
      {pooled_and({"model.norm.final=false"}), "model.norm.final", "there is no block"},
      {pooled_and({"model.bias=true"}), "model.bias", "task.head has no norm"},
      {pooled_and({"train.cpu_slices=2"}), "train.cpu_slices", "model.embedding.region"},
      {{"task={kind: classification, head: {kind: max_pooled, bag: naive_bayes}}", "train.cpu_slices=2"},
       "train.cpu_slices",
       "task.head.bag"},
  }));
  const auto [code, message] = failure([&] { config_of("", overrides); });
  INFO(message);
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring(": " + key + ": ") && ContainsSubstring(why));
}

TEST_CASE("keys that have an effect with regions or without blocks are accepted", "[config]") {
  const auto overrides =
      GENERATE(pooled_and({}), pooled_and({"model.dropout=0.1", "model.embedding={std: 0.01, dropout: 0.2}"}),
               pooled_and({"task.head=mean_pooled", "model.norm={kind: rms_norm, epsilon: 1e-6}"}),
               pooled_and({"task.head=mean_pooled", "model.bias=true"}), pooled_and({"model.embedding.region=none"}),
               pooled_and({"model.layers=1", "model.mixer=metric", "model.positions=learned"}),
               pooled_and({"train.optimizer={kind: adagrad, epsilon: 1e-6}"}), pooled_and({"data.packing=spfhp"}));
  const auto config = config_of("", overrides);
  CHECK(config_to_json(config_of(config_to_yaml(config), {})) == config_to_json(config));
}

}  // namespace metaformer
