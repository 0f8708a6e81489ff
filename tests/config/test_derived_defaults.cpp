// Defaults that follow from other keys.

#include "config/complaint.h"

namespace metaformer::test_derived_defaults {

namespace {

std::int64_t slices_with(const Overrides& overrides) { return default_experiment(overrides).config.train.cpu_slices; }

double floor_with(const Overrides& overrides) {
  return std::get<CosineScheduleConfig>(default_experiment(overrides).config.train.schedule).floor;
}

EmbeddingScale scale_with(const Overrides& overrides) {
  return blocks_of(default_experiment(overrides).config.model)->embedding.scale;
}

}  // namespace

TEST_CASE(
    "the default number of slices depends on the tokens of a batch and the gradients' size, and a given one is kept",
    "[defaults]") {
  const Overrides large = {"train.batch_size=64", "model.context=256"},
                  texts = {"task=classification", "data.corpus=imdb", "train.batch_size=64"};
  CHECK(slices_with({"train.batch_size=12", "model.context=64"}) == 2);  // 768 tokens
  CHECK(slices_with({"train.batch_size=1", "model.context=64"}) == 1);
  CHECK(slices_with(large) == 8);
  CHECK(slices_with(joined(large, {"model.width=512"})) == 1);
  CHECK(slices_with(joined(large, {"train.cpu_slices=1"})) == 1);
  CHECK(slices_with({"train.cpu_slices=5"}) == 5);
  CHECK(slices_with(texts) > 1);
  for (const auto* more :
       {"model.embedding.ngrams.order=2", "task.head={kind: max_pooled, bag: naive_bayes}", "model=linear"})
    CHECK(slices_with(joined(texts, {more})) == 1);
}

TEST_CASE("embeddings are scaled if sinusoids are added to them, unless a config sets the scale", "[defaults]") {
  CHECK(scale_with({}) == EmbeddingScale::none);
  for (const auto* other : {"learned", "none", "rotary", "alibi", "t5", "shaw", "transformer_xl"})
    CHECK(scale_with({std::string("model.positions=") + other}) == EmbeddingScale::none);
  const auto [more, scale] = GENERATE(table<Overrides, EmbeddingScale>({
      {Overrides(), EmbeddingScale::sqrt_width},
      {{"model.embedding.scale=none"}, EmbeddingScale::none},
      {{"model.embedding={std: 1, scale: sqrt_width}"}, EmbeddingScale::sqrt_width},
      {{"task=sequence_to_sequence", "data.synthetic=copy", "model.kind=encoder_decoder"}, EmbeddingScale::sqrt_width},
      {{"task=classification", "data.corpus=imdb"}, EmbeddingScale::sqrt_width},
      {{"task=classification", "data.corpus=imdb", "model.embedding.scale=log_count_ratio"},
       EmbeddingScale::log_count_ratio},
      // Embeddings of regions have no scale.
      {{"task={kind: classification, head: max_pooled}", "data.corpus=imdb", "train.cpu_slices=1",
        "model.embedding.region=sequence"},
       EmbeddingScale::none},
  }));
  CHECK(scale_with(joined({"model.positions=sinusoidal"}, more)) == scale);
}

TEST_CASE("the default floor lies below a fine-tuning rate, and a given floor is checked", "[defaults]") {
  CHECK(floor_with({"train.learning_rate=1e-3"}) == 1e-4);
  CHECK(floor_with({"train.learning_rate=1e-4"}) == 1e-4);
  CHECK(floor_with({"train.learning_rate=2e-5"}) == Approx(2e-6));
  CHECK_THROWS(floor_with({"train.learning_rate=2e-5", "train.schedule.floor=1e-4"}));
}

}  // namespace metaformer::test_derived_defaults
