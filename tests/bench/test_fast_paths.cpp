// The kernels that a benchmark times, and its reported fast paths against the nodes in the graph of a training pass.

#include <torch/csrc/autograd/function.h>

#include <set>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "bench/step_bench.h"
#include "config/mixer_config.h"
#include "model/parameters.h"
#include "model/recurrent_model.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_fast_paths {

namespace {

// Whether the graph of y has a node whose name starts with `start`.
bool has_node(const torch::Tensor& y, const std::string& start) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> left = {y.grad_fn().get()};
  while (!left.empty()) {
    auto* node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (node->name().starts_with(start)) return true;
    for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  return false;
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
  Gpt network(model, /*vocabulary=*/5);
  initialise(network, 1);
  Pass pass{.training = true, .random = RandomStream(torch::ones({}, torch::kLong))};
  const auto logits_bcv = network.forward({.ids_bc = torch::zeros({2, 8}, torch::kLong)}, nullptr, pass);
  const auto paths = fast_paths(config, torch::kCPU);
  CAPTURE(kind_of(model.mixer), kind_of(model.positions), paths.front().why_not);
  REQUIRE(paths.size() == 1);
  CHECK(paths.front().why_not.empty() == has_node(logits_bcv, "attention"));
}

}  // namespace

TEST_CASE("the reported fast paths of every mixer and kind of positions are used", "[bench]") {
  auto model = small_model();
  model.mixer = any_mixer();
  model.heads = with_pairs(model.mixer_shape(), model.mixer).heads;
  model.positions = any_positions();
  const bool has_sense = has_scores(model.mixer) || !act_on_scores(model.positions);
  if (!has_sense || problem_of(model.mixer, model.mixer_shape())) return does_not_apply("no scores, or refused");
  check_paths(model);
}

TEST_CASE("oneDNN computes only the recurrence of an LSTM, in every precision", "[bench]") {
  const auto cell = GENERATE(RecurrentCell::lstm, RecurrentCell::gru);
  RecurrentModel model(RecurrentConfig{.cell = cell}, /*vocabulary=*/5);
  initialise(model, 1);
  ExperimentConfig config;
  config.model = cell == RecurrentCell::lstm ? ModelConfig(LstmConfig()) : ModelConfig(GruConfig());
  config.train.precision = GENERATE(Precision::fp32, Precision::bf16, Precision::fp16);
  const AutocastScope autocast(config.train.precision, torch::kCPU);
  Pass pass{.training = true};
  const auto hidden_bcd = model.hidden({.ids_bc = torch::zeros({2, 8}, torch::kLong)}, nullptr, pass);
  const auto paths = fast_paths(config, torch::kCPU);
  REQUIRE(paths.size() == 1);
  CHECK(paths.front().part == "recurrence");
  CHECK(paths.front().why_not.empty() == has_node(hidden_bcd, "MkldnnRnnLayer"));
  CHECK(fast_paths(config, torch::Device(torch::kCUDA, 0)).front().why_not == "the device is not a CPU");
  config.model = FeedForwardModelConfig{};
  CHECK(fast_paths(config, torch::kCPU).empty());
}

TEST_CASE("there is no fast path in float16 or on another device", "[bench]") {
  ExperimentConfig config;
  auto model = small_model();
  model.mixer = ScaledDotProductOptions{};
  config.model = model;
  for (const auto& path : fast_paths(config, torch::Device(torch::kCUDA, 0)))
    CHECK(path.why_not == "the device is not a CPU");
  config.train.precision = Precision::fp16;
  for (const auto& path : fast_paths(config, torch::kCPU)) CHECK(path.why_not == "train.precision is fp16");
  config.train.precision = Precision::fp32;
  // The limit includes the memory.
  for (const auto& [context, memory, why_not] : std::vector<std::tuple<std::int64_t, std::int64_t, std::string>>{
           {8, 0, ""},
           {8, 8, ""},
           {20000, 0, "model.context is above 16384"},
           {128, 16380, "model.context and model.memory are above 16384"}}) {
    model.context = context;
    model.memory = memory;
    config.model = model;
    CHECK(fast_paths(config, torch::kCPU).front().why_not == why_not);
  }
}

TEST_CASE("every kernel of the program is timed beside the library's", "[bench]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const auto head_width = GENERATE(3, 8);  // rotary positions need an even width
  const auto results = bench_kernels(
      {.shape = {.batch = 2, .heads = 2, .context = 5, .head_width = head_width}, .type = type, .rounds = 2});
  std::vector<std::string> kernels;
  for (const auto& result : results) {
    CHECK(result.ms > 0);
    CHECK(result.library_ms > 0);
    CHECK(result.ratio > 0);
    kernels.push_back(result.kernel);
  }
  std::vector<std::string> expected = {"attention", "gelu", "gated silu", "dropout", "rms_norm"};
  if (head_width == 8) expected.push_back("rotary");
  expected.insert(expected.end(), {"cross_entropy", "linear layer"});
  CHECK(kernels == expected);
}

}  // namespace metaformer::test_fast_paths
