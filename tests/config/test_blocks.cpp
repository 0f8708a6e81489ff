// Configs of blocks: norms, activations, feed-forward branches.

#include "config/complaint.h"
#include "config/writer.h"
#include "support/failure.h"

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

TEST_CASE("a config of any block reads back from its dump", "[config]") {
  const auto overrides =
      GENERATE(std::vector<std::string>{"model={norm: {kind: rms_norm, position: both}, residual: false}"},
               std::vector<std::string>{"model={norm: rms_norm, feed_forward: gated, bias: true}"},
               std::vector<std::string>{"model.feed_forward={activation: {kind: silu, beta: 3}}"},
               std::vector<std::string>{"model.feed_forward={activation: relu_squared, output_activation: true}"});
  const auto config = default_experiment(overrides).config;
  CHECK(config_to_json(config_of(config_to_yaml(config))) == config_to_json(config));
}

}  // namespace metaformer
