#include "config/loader.h"
#include "config/writer.h"
#include "run/huggingface/architecture.h"
#include "support/catch.h"

namespace metaformer {

namespace {

using Lines = std::vector<std::string>;

TransformerConfig config_of(const std::vector<std::string>& overrides) {
  return transformer(default_experiment(overrides).config);
}

const Lines like_llama = {"model.mixer=scaled_dot_product", "model.positions=rotary", "model.norm=rms_norm",
                          "model.feed_forward=gated"};
const Lines like_gpt2 = {"model.mixer=scaled_dot_product", "model.bias=true"};

Lines differences(Lines overrides, const Lines& needed) {
  overrides.insert(overrides.begin(), needed.begin(), needed.end());
  return config_differences(config_of(overrides), config_of(needed));
}

}  // namespace

TEST_CASE("a config does not differ from itself, nor in what changes no function", "[config_differences]") {
  for (const auto& needed : {like_llama, like_gpt2}) CHECK(differences({}, needed).empty());
  for (const auto* free :
       {"model.dropout=0.1", "model.embedding.std=1", "model.embedding.dropout=0.5", "model.mixer.backend=reference",
        "model.mixer.score_std=null", "model.feed_forward.chunks=2"})
    CHECK(differences({free}, like_gpt2).empty());
  CHECK(differences({"model.memory=32"}, like_llama).empty());
  CHECK(differences({"model.context=1024"}, like_llama).empty());
  CHECK(differences({"model.feed_forward.ratio=2.67"}, like_llama).empty());  // 344 units as before
}

TEST_CASE("every other difference is a line with both values", "[config_differences]") {
  using Row = std::tuple<Lines, std::string, std::string>;
  const auto [needed, override, line] = GENERATE(values<Row>({
      {like_gpt2, "model.layers=2", "model.layers is 2 and must be 4"},
      {like_gpt2, "model.heads=8", "model.heads is 8 and must be 4"},
      {like_gpt2, "model.context=32", "model.context is 32 and must be 64"},
      {like_gpt2, "model.bias=false", "model.bias is false and must be true"},
      {like_gpt2, "model.embedding.tie=false", "model.embedding.tie is false and must be true"},
      {like_gpt2, "model.embedding.scale=sqrt_width", "model.embedding.scale is sqrt_width and must be none"},
      {like_gpt2, "model.norm.epsilon=0.001", "model.norm.epsilon is 0.001 and must be 1.0e-05"},
      {like_gpt2, "model.norm.final=false", "model.norm.final is false and must be true"},
      {like_gpt2, "model.norm=rms_norm", "model.norm.kind is rms_norm and must be layer_norm"},
      {like_gpt2, "model.residual=false", "model.residual is false and must be true"},
      {like_gpt2, "model.blocks=reversible", "model.blocks is reversible and must be plain"},
      {like_gpt2, "model.mixer=metric", "model.mixer.kind is metric and must be scaled_dot_product"},
      {like_gpt2, "model.mixer.qk_norm=true", "model.mixer.qk_norm is true and must be false"},
      {like_gpt2, "model.feed_forward.activation=relu", "model.feed_forward.activation.kind is relu and must be gelu"},
      {like_gpt2, "model.feed_forward.ratio=2", "model.feed_forward.ratio is 2 and must be 4"},
      {like_llama, "model.positions.base=500", "model.positions.base is 500 and must be 10000"},
      {like_llama, "model.positions=none", "model.positions.kind is none and must be rotary"},
  }));
  CHECK(differences({override}, needed) == Lines{line});
}

TEST_CASE("GPT-2 and LLaMA are themselves what is closest to them", "[config_differences]") {
  CHECK(config_differences(config_of(like_gpt2), gpt2().closest(config_of(like_gpt2))).empty());
  CHECK(config_differences(config_of(like_llama), llama().closest(config_of(like_llama))).empty());
  CHECK_FALSE(config_differences(config_of(like_llama), gpt2().closest(config_of(like_llama))).empty());
}

}  // namespace metaformer
