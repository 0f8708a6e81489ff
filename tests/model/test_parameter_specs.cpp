// Initialisation and weight decay go by what is said where a parameter is registered.

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "model/classifier.h"
#include "model/parameters.h"
#include "model/small_models.h"
#include "model/token_model.h"
#include "ops/linear.h"
#include "support/any_mixer.h"

namespace metaformer {

namespace {

// Names and shapes by which no rule could tell what they are.
struct Odd : Layer {
  Odd() {
    add_parameter("bias", torch::zeros({3, 400}), {.init = Init::normal(0.5), .decay = Decay::matrices});
    add_parameter("table", torch::zeros(7), {.init = Init::ones(), .decay = Decay::embeddings});
    add_parameter("weight", torch::ones({4, 4}), {.init = Init::zeros()});
    add_parameter("scale", torch::zeros(900), {.init = Init::uniform(0.5)});
  }
};

TransformerConfig config_of(const MixerConfig& mixer) {
  auto config = small_transformer(mixer, 12, 9);
  config.heads = 3;
  return config;
}

}  // namespace

TEST_CASE("a parameter starts and decays as its spec says, whatever its name and shape", "[specs]") {
  Odd odd;
  initialise(odd, 3, 1);
  const auto parameters = odd.named_parameters();
  CHECK(parameters["bias"].std().item<double>() == Approx(0.5).epsilon(0.1));
  CHECK(torch::equal(parameters["table"], torch::ones(7)));
  CHECK(torch::equal(parameters["weight"], torch::zeros({4, 4})));
  CHECK(parameters["scale"].abs().max().item<double>() == Approx(0.5).epsilon(0.01));
  CHECK(parameters["scale"].abs().max().item<double>() <= 0.5);
  CHECK(parameters["scale"].std().item<double>() == Approx(0.5 / std::sqrt(3)).epsilon(0.05));
  const ParameterBuffer buffer(odd);
  REQUIRE(buffer.views().size() == 4);
  CHECK(buffer.views()[0].name == "table");
  CHECK(buffer.views()[1].name == "bias");
  CHECK(buffer.views()[2].name == "weight");
  for (std::size_t i = 0; i < 3; ++i) CHECK(buffer.views()[i].decay == static_cast<Decay>(i));
}

TEST_CASE("a parameter without a spec is an error that names it", "[specs]") {
  torch::nn::Sequential modules(Linear(2, 3, /*bias=*/true), torch::nn::Linear(3, 4));
  CHECK_THROWS_WITH(specified_parameters(*modules), ContainsSubstring("1.weight"));
}

TEST_CASE("in every model matrices decay, and norms and biases do not", "[specs]") {
  auto config = config_of(any_mixer());
  config.bias = true;
  config.embedding.tie = false;
  config.embedding.ngrams = {.order = 2, .buckets = 32};
  const bool classifies = GENERATE(false, true);
  std::shared_ptr<SequenceModel> model = std::make_shared<Gpt>(config, 11);
  if (classifies) model = std::make_shared<Classifier>(config, HeadConfig{}, 11, 3);
  for (const auto& [name, value, spec] : specified_parameters(*model)) {
    INFO(name);
    CHECK((spec.decay == Decay::none) == (value.dim() < 2));
    CHECK((spec.decay == Decay::embeddings) == name.ends_with("embedding.weight"));
  }
}

TEST_CASE("the matrices of the blocks are hidden matrices, and their parts are counted", "[specs]") {
  auto config = config_of(any_mixer());
  config.embedding.tie = false;
  config.feed_forward = GENERATE(FeedForwardConfig(MlpConfig{}), FeedForwardConfig(GatedConfig{}));
  Gpt model(config, 11);
  for (const auto& [name, value, spec] : specified_parameters(model)) {
    INFO(name);
    const bool is_square_form = name.ends_with("form");
    const bool is_projection = name.ends_with(".weight") && value.dim() == 2 &&
                               name.find(".blocks.") != std::string::npos && spec.decay == Decay::matrices;
    CHECK((spec.hidden_matrices > 0) == (is_square_form || is_projection));
    if (is_square_form) CHECK(spec.hidden_matrices == config.heads);
    if (is_projection && name.find("mixer") != std::string::npos)
      CHECK(spec.hidden_matrices == value.size(0) / config.width);
    if (name.ends_with("up.weight")) CHECK(spec.hidden_matrices == (is<GatedConfig>(config.feed_forward) ? 2 : 1));
  }
}

TEST_CASE("a model draws nothing from the library's generator", "[specs]") {
  const auto bits = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const auto before = bits();
  auto config = config_of(any_mixer());
  config.dropout = 0.3;
  config.embedding.dropout = 0.3;
  auto model = started(Gpt(config, 11), 3);
  StepPasses passes(1, torch::kCPU);
  auto pass = passes.pass(0);
  const Batch batch{.ids_bc = torch::zeros({2, 9}, torch::kLong)};
  model.forward(batch, nullptr, pass).sum().backward();
  CHECK(pass.random.place() > 0);
  CHECK(torch::equal(bits(), before));
}

}  // namespace metaformer
