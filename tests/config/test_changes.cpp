// The differences of a config from the defaults, and the digest that identifies runs.

#include <set>

#include "config/loader.h"
#include "config/writer.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer::test_changes {
using Overrides = std::vector<std::string>;
using Settings = std::map<std::string, std::string>;

static Settings changes_of(const Overrides& overrides) {
  return flattened(config_changes(default_experiment(overrides).config));
}

TEST_CASE("changes are the keys that differ from the defaults of their own kind, task and model", "[changes]") {
  const auto [overrides, expected] = GENERATE(table<Overrides, Settings>({
      {{}, {}},
      {{"train.steps=2000", "model.mixer=scaled_dot_product"}, {}},  // both are defaults
      {{"train.steps=100"}, {{"train.steps", "100"}}},
      {{"train.epochs=1.5"}, {{"train.epochs", "1.5"}}},
      {{"model.mixer=quadratic"}, {{"model.mixer.kind", "quadratic"}}},
      {{"model.mixer={kind: quadratic, score_std: 0.3}"},
       {{"model.mixer.kind", "quadratic"}, {"model.mixer.score_std", "0.3"}}},
      {{"model.mixer.score_std=0.3"}, {{"model.mixer.score_std", "0.3"}}},
      {{"task=sort"}, {{"task.kind", "sort"}}},
      {{"task=sort", "task.length=8"}, {{"task.kind", "sort"}, {"task.length", "8"}}},
      // Sinusoidal positions have their own default scale of the embeddings.
      {{"model.positions=sinusoidal"}, {{"model.positions.kind", "sinusoidal"}}},
      {{"model.positions=sinusoidal", "model.embedding.scale=sqrt_width"}, {{"model.positions.kind", "sinusoidal"}}},
      {{"model.positions=sinusoidal", "model.embedding.scale=none"},
       {{"model.embedding.scale", "none"}, {"model.positions.kind", "sinusoidal"}}},
      {{"model.embedding.scale=sqrt_width"}, {{"model.embedding.scale", "sqrt_width"}}},
      {{"task=classification", "data.corpus=imdb"}, {{"data.corpus", "imdb"}, {"task.kind", "classification"}}},
      {{"task=classification", "data.corpus=imdb", "model=linear"},
       {{"data.corpus", "imdb"}, {"model.kind", "linear"}, {"task.kind", "classification"}}},
  }));
  CHECK(changes_of(overrides) == expected);
}

TEST_CASE("the changes restore the config", "[changes]") {
  const auto overrides = GENERATE(values<Overrides>(
      {{"model.mixer={kind: metric, constraint: psd, score: distance}", "train.seed=3"},
       {"task=sort", "model.positions=rotary", "train.optimizer.betas=[0.9, 0.95]"},
       {"train.epochs=2", "model.mixer=quadratic"},
       {"model.positions=sinusoidal", "model.embedding.scale=none"},
       {"model.positions=sinusoidal", "model.mixer={kind: metric, values: own, qk_norm: true}"},
       {"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder", "model.mixer=metric",
        "model.cross_mixer=metric", "model.encoder.mixer=average_pooling", "model.positions=sinusoidal"},
       {"task=classification", "data.corpus=imdb", "model.embedding.ngrams.order=2", "train.precision=bf16"}}));
  const auto config = default_experiment(overrides).config;
  Overrides again;
  for (const auto& [key, value] : flattened(config_changes(config))) again.push_back(key + "=" + value);
  CHECK(config_to_json(default_experiment(again).config) == config_to_json(config));
}

TEST_CASE("equal configs have equal digests, however they are written", "[changes]") {
  const auto digest = [](const Overrides& overrides) { return config_digest(default_experiment(overrides).config); };
  CHECK(digest({"model.mixer={kind: quadratic, score_std: 0.3}", "train.steps=1e3"}) ==
        digest({"train.steps=1000", "model.mixer.kind=quadratic", "model.mixer.score_std=0.3"}));
  CHECK(digest({"train.seed=1"}) != digest({"train.seed=2"}));
  CHECK(digest({"train.cpu_slices=1"}) == digest({"train.cpu_slices=5"}));  // slices change only rounding
  // The number of evaluated tokens has no effect on training.
  CHECK(digest({"train.evaluation=whole"}) == digest({}));
  CHECK(digest({"train.evaluation={kind: limited, tokens: 1000}"}) == digest({}));
  CHECK(digest({"train.evaluation={kind: random, tokens: 1000}"}) == digest({"train.evaluation=random"}));
  CHECK(digest({"train.evaluation=random"}) != digest({}));
  CHECK(digest({}).size() == 16);
  // With train.epochs the number of steps follows from the data.
  auto config = default_experiment({"train.epochs=3"}).config;
  config.train.steps = 1234;
  CHECK(config_digest(config) == digest({"train.epochs=3"}));
  CHECK(config_digest(config) != digest({"train.epochs=4"}));
}

// Published results are those of the whole validation split.
TEST_CASE("the configs of the program are valid, begin with a comment, and evaluate the whole validation split",
          "[changes]") {
  const auto folder = config_folders().back();
  // Configs for the user's own texts.
  const std::set<std::string> for_any_data = {"gpt2", "llama", "vaswani2017", "text_classifier"};
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;  // their schema
    INFO(entry.path());
    const auto config = load_experiment(entry.path().string(), {}).config;
    CHECK(read_text(entry.path()).starts_with("# yaml-language-server: $schema=metaformer.schema.json\n# "));
    if (is<LinearConfig>(config.model) || for_any_data.contains(entry.path().stem().string())) continue;
    ++seen;
    const auto& evaluation = config.train.evaluation;
    const auto* data = text_data_of(config.task);
    constexpr std::int64_t shakespeare_characters = 111540, copied_tokens = std::int64_t{1} << 20;
    if (const auto* limited = std::get_if<LimitedEvaluationConfig>(&evaluation))
      CHECK((limited->tokens >= shakespeare_characters && data != nullptr && data->corpus == "tinyshakespeare"));
    else if (const auto* random = std::get_if<RandomEvaluationConfig>(&evaluation))
      CHECK((random->tokens >= copied_tokens && kind_of(config.task) == "copy"));
    else
      CHECK(is<WholeEvaluationConfig>(evaluation));
  }
  CHECK(seen > 60);
}

}  // namespace metaformer::test_changes
