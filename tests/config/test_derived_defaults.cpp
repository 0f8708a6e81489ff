// Defaults that follow from other keys.

#include "config/loader.h"
#include "config/writer.h"
#include "support/catch.h"

using namespace metaformer;

namespace {

std::int64_t slices_with(const std::vector<std::string>& overrides) {
  return default_experiment(overrides).config.train.cpu_slices;
}

double floor_with(const std::vector<std::string>& overrides) {
  return std::get<CosineScheduleConfig>(default_experiment(overrides).config.train.schedule).floor;
}

EmbeddingScale scale_with(const std::vector<std::string>& overrides) {
  const auto config = default_experiment(overrides).config;
  return blocks_of(config.model)->embedding.scale;
}

}  // namespace

TEST_CASE("slices follow from the tokens of a batch, and are few where a slice's gradients are large", "[defaults]") {
  CHECK(slices_with({"train.batch_size=12", "model.context=64"}) == 2);  // 768 tokens
  CHECK(slices_with({"train.batch_size=1", "model.context=64"}) == 1);
  CHECK(slices_with({"train.batch_size=64", "model.context=256"}) == 8);
  CHECK(slices_with({"train.batch_size=64", "model.context=256", "model.width=512"}) == 1);
  const std::vector<std::string> texts = {"task=classification", "data.corpus=imdb", "train.batch_size=64"};
  const auto texts_and = [&](const std::string& more) {
    auto all = texts;
    all.push_back(more);
    return slices_with(all);
  };
  CHECK(slices_with(texts) > 1);
  CHECK(texts_and("model.embedding.ngrams.order=2") == 1);
  CHECK(texts_and("task.head={kind: max_pooled, bag: naive_bayes}") == 1);
  CHECK(texts_and("model=linear") == 1);
}

TEST_CASE("a number of slices that is written counts", "[defaults]") {
  CHECK(slices_with({"train.cpu_slices=1", "train.batch_size=64", "model.context=256"}) == 1);
  CHECK(slices_with({"train.cpu_slices=5"}) == 5);
}

TEST_CASE("embeddings are scaled where sinusoids are added to them, unless a config says otherwise", "[defaults]") {
  CHECK(scale_with({}) == EmbeddingScale::none);
  for (const auto* other : {"learned", "none", "rotary", "alibi", "t5", "shaw", "transformer_xl"})
    CHECK(scale_with({std::string("model.positions=") + other}) == EmbeddingScale::none);
  const std::string sinusoidal = "model.positions=sinusoidal";
  CHECK(scale_with({sinusoidal}) == EmbeddingScale::sqrt_width);
  CHECK(scale_with({sinusoidal, "model.embedding.scale=none"}) == EmbeddingScale::none);
  CHECK(scale_with({sinusoidal, "model.embedding={std: 1, scale: sqrt_width}"}) == EmbeddingScale::sqrt_width);
  CHECK(scale_with({sinusoidal, "task=sequence_to_sequence", "data.synthetic=copy", "model.kind=encoder_decoder"}) ==
        EmbeddingScale::sqrt_width);
  CHECK(scale_with({sinusoidal, "task=classification", "data.corpus=imdb"}) == EmbeddingScale::sqrt_width);
  CHECK(scale_with({sinusoidal, "task=classification", "data.corpus=imdb", "model.embedding.scale=log_count_ratio"}) ==
        EmbeddingScale::log_count_ratio);
  // Regions of tokens take the place of what would be scaled.
  CHECK(scale_with({sinusoidal, "task={kind: classification, head: max_pooled}", "data.corpus=imdb",
                    "train.cpu_slices=1", "model.embedding.region=sequence"}) == EmbeddingScale::none);
}

TEST_CASE("the default floor lies below a fine-tuning rate, and a floor that is written is checked", "[defaults]") {
  CHECK(floor_with({"train.learning_rate=1e-3"}) == 1e-4);
  CHECK(floor_with({"train.learning_rate=1e-4"}) == 1e-4);
  CHECK(floor_with({"train.learning_rate=2e-5"}) == Approx(2e-6));
  CHECK_THROWS(floor_with({"train.learning_rate=2e-5", "train.schedule.floor=1e-4"}));
}
