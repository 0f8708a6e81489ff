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

TEST_CASE("a source that sets steps or epochs replaces the other one of earlier sources", "[defaults]") {
  const auto length = [](const std::string& yaml, const Overrides& overrides) {
    const auto train = config_of(yaml, overrides).train;
    return std::pair(train.steps, train.epochs);
  };
  const auto usual = TrainConfig{}.steps;
  CHECK(length("train: {steps: 5}", {"train.epochs=2"}) == std::pair(usual, std::optional(2.0)));
  CHECK(length("train: {epochs: 2}", {"train.steps=5"}).first == 5);
  CHECK_FALSE(length("train: {epochs: 2}", {"train.steps=5"}).second);
  CHECK_FALSE(length("train: {epochs: 2}", {"train.epochs=null"}).second);
  CHECK(length("train: {epochs: 2}", {"train.seed=5"}).second == 2.0);
  CHECK(length("train: {epochs: null, steps: 5}", {}).first == 5);
  CHECK_THAT(complaint("train:\n  steps: 5\n  epochs: 2\n"),
             ContainsSubstring("a.yaml:3:11: train.epochs: 2 and train.steps 5"));
  CHECK(complaint("train: {steps: 5, epochs: 2}", {"train.steps=7"}) == "accepted");
  // A dump names only one of them.
  const auto config = config_of("train: {epochs: 0.5}");
  check_reads_back(config);
  CHECK_FALSE(config_to_json(config).at("train").contains("steps"));
  CHECK(config_to_json(config_of(config_to_yaml(config), {"train.steps=9"})).at("train").at("steps") == 9);
}

TEST_CASE("a source that names tokens replaces the tokenizer of earlier sources", "[defaults]") {
  const TemporaryFolder folder;
  const auto tokens = folder.write("tokens/manifest.json", "").parent_path().string();
  const auto unfinished = folder.write("unfinished/unfinished.json", "").parent_path().string();
  const auto texts = folder.write("texts/a.txt", "").parent_path().string();
  const std::string yaml = "data: {tokenizer: {kind: bpe, vocabulary: 300}}\n";
  const auto tokenizer = [&](const Overrides& overrides) {
    return std::string(kind_of(language_model(config_of(yaml, overrides)).data.tokenizer));
  };
  for (const auto& path : {tokens, unfinished}) CHECK(tokenizer({"data.path=" + path}) == "character");
  CHECK(tokenizer({"data.mixture=[" + tokens + "=1]"}) == "character");
  CHECK(tokenizer({"data.path=" + texts}) == "bpe");
  CHECK(tokenizer({"data.path=" + tokens, "data.tokenizer=byte"}) == "byte");  // an error when the tokens are read
  CHECK_THAT(
      complaint(yaml, {"data.mixture=[" + tokens + "=1]", "data.tokenizer=byte"}),
      ContainsSubstring("data.tokenizer.kind: has no effect with data.mixture") && ContainsSubstring("leave it out"));
  CHECK_THAT(complaint("data: {tokenizer: bpe, mixture: [" + tokens + "=1]}\n"),
             ContainsSubstring("a.yaml:1:19: data.tokenizer.kind: has no effect with data.mixture"));
  const auto nanogpt = folder.write("nanogpt/meta.pkl", "").parent_path().string();
  CHECK(tokenizer({"data.path=" + nanogpt}) == "character");
}

TEST_CASE("a source that names tokens replaces the texts of earlier sources", "[defaults]") {
  const TemporaryFolder folder;
  const auto tokens = folder.write("tokens/manifest.json", "").parent_path().string();
  const auto mixture = "data.mixture=[" + tokens + "=1]";
  const std::string yaml =
      "data: {path: a.jsonl, validation_path: b.jsonl, format: jsonl, text_field: body, malformed_limit: 0.1}\n";
  const auto data_with = [&](const Overrides& overrides) { return language_model(config_of(yaml, overrides)).data; };
  for (const auto& source : {mixture, "data.path=" + tokens}) {
    INFO(source);
    const auto data = data_with({source});
    CHECK(data.path.has_value() == (source != mixture));
    CHECK_FALSE(data.validation_path);
    CHECK(data.format == TableFormat::automatic);
    CHECK(data.text_field == "text");
    CHECK(data.malformed_limit == 0);
  }
  CHECK(data_with({"data.path=c.jsonl"}).text_field == "body");
  CHECK(language_model(config_of("data: {mixture: [" + tokens + "=1]}", {"data.path=c.txt"})).data.mixture.empty());
  CHECK(language_model(config_of("data: {corpus: tinyshakespeare}", {mixture})).data.mixture.size() == 1);
  // Keys of the same source contradict each other.
  CHECK_THAT(complaint(yaml, {mixture, "data.path=c.txt"}), ContainsSubstring("has no effect with data.mixture"));
  CHECK_THAT(complaint("data: {mixture: [" + tokens + "=1], text_field: body}"),
             ContainsSubstring("data.text_field: has no effect with data.mixture"));
}

}  // namespace metaformer::test_derived_defaults
