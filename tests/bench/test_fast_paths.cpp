// Fast paths that a benchmark reports, against the nodes in the graph of a training pass.

#include <algorithm>

#include "bench/step_bench.h"
#include "config/mixer_config.h"
#include "model/parameters.h"
#include "model/recurrent_model.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "support/any_mixer.h"
#include "support/graph_nodes.h"

namespace metaformer {

namespace {

std::vector<std::string> nodes_of_a_pass(const TransformerConfig& config) {
  Gpt model(config, /*vocabulary=*/5);
  initialise(model, 1);
  Pass pass{.training = true, .random = RandomStream(torch::ones({}, torch::kLong))};
  return names_of_nodes(model.forward({.ids_bc = torch::zeros({2, 8}, torch::kLong)}, nullptr, pass));
}

TransformerConfig small_model() {
  TransformerConfig config;
  config.layers = 1;
  config.heads = 3;
  config.width = 12;
  config.context = 8;
  return config;
}

void check_paths(const TransformerConfig& model) {
  ExperimentConfig config;
  config.model = model;
  const auto nodes = nodes_of_a_pass(model);
  const bool taken = std::count(nodes.begin(), nodes.end(), "attention") > 0;
  const auto paths = fast_paths(config, torch::kCPU);
  CAPTURE(kind_of(model.mixer), kind_of(model.positions), paths.front().why_not);
  REQUIRE(paths.size() == 1);
  CHECK(paths.front().why_not.empty() == taken);
}

}  // namespace

TEST_CASE("fast paths of every mixer and position are those that are taken", "[bench]") {
  auto model = small_model();
  model.mixer = any_mixer();
  for (const PositionsConfig& positions :
       {PositionsConfig(LearnedPositionsConfig{}), PositionsConfig(RotaryPositionsConfig{}),
        PositionsConfig(AlibiPositionsConfig{}), PositionsConfig(T5PositionsConfig{}),
        PositionsConfig(ShawPositionsConfig{.max_distance = 3}), PositionsConfig(TransformerXlPositionsConfig{})}) {
    model.positions = positions;
    const bool has_sense = has_scores(model.mixer) || !act_on_scores(positions);
    if (has_sense && !problem_of(model.mixer, model.mixer_shape())) check_paths(model);
  }
}

TEST_CASE("the fast path of attention has a limit that counts memory", "[bench]") {
  ExperimentConfig config;
  auto& model = transformer(config);
  model.mixer = ScaledDotProductOptions{};
  const auto why_not = [&] { return fast_paths(config, torch::kCPU).front().why_not; };
  CHECK(why_not().empty());
  model.memory = 8;
  CHECK(why_not().empty());
  model.memory = 16380;
  CHECK(why_not() == "model.context and model.memory are above 16384");
}

TEST_CASE("oneDNN computes the recurrence of an LSTM, in every precision, and of no other model", "[bench]") {
  const auto cell = GENERATE(RecurrentCell::lstm, RecurrentCell::gru);
  RecurrentConfig options{.cell = cell};
  RecurrentModel model(options, /*vocabulary=*/5);
  initialise(model, 1);
  ExperimentConfig config;
  if (cell == RecurrentCell::lstm)
    config.model = LstmConfig();
  else
    config.model = GruConfig();
  config.train.precision = GENERATE(Precision::fp32, Precision::bf16, Precision::fp16);
  const AutocastScope autocast(config.train.precision, torch::kCPU);
  Pass pass{.training = true};
  const auto nodes = names_of_nodes(model.hidden({.ids_bc = torch::zeros({2, 8}, torch::kLong)}, nullptr, pass));
  const bool taken = std::any_of(nodes.begin(), nodes.end(), [](const std::string& node) {
    return node.find("MkldnnRnnLayer") != std::string::npos;
  });
  const auto paths = fast_paths(config, torch::kCPU);
  REQUIRE(paths.size() == 1);
  CHECK(paths.front().part == "recurrence");
  CHECK(paths.front().why_not.empty() == taken);
  CHECK(fast_paths(config, torch::Device(torch::kCUDA, 0)).front().why_not == "the device is not a CPU");
  config.model = FeedForwardModelConfig{};
  CHECK(fast_paths(config, torch::kCPU).empty());
}

TEST_CASE("no fast path in float16 or on another device", "[bench]") {
  ExperimentConfig config;
  auto model = small_model();
  model.mixer = ScaledDotProductOptions{};
  config.model = model;
  for (const auto& path : fast_paths(config, torch::Device(torch::kCUDA, 0)))
    CHECK(path.why_not == "the device is not a CPU");
  config.train.precision = Precision::fp16;
  for (const auto& path : fast_paths(config, torch::kCPU)) CHECK(path.why_not == "train.precision is fp16");
  model.context = 20000;
  config.model = model;
  config.train.precision = Precision::fp32;
  CHECK(fast_paths(config, torch::kCPU).front().why_not == "model.context is above 16384");
}

}  // namespace metaformer
