// How language models with an LSTM or a GRU are trained.

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/rnn.h>

#include <cmath>

#include "model/memory_estimate.h"
#include "model/parameters.h"
#include "model/recurrent_support.h"
#include "ops/autocast.h"

namespace metaformer {

TEST_CASE("gradients flow through a segment and not into the state before it", "[recurrent]") {
  auto config = any_config();
  config.carry_state = true;
  auto model = model_of(config);
  const auto ids_bc = random_ids(2 * segment);
  const auto segments_bc = documents({{7, 3}, {10}});
  const auto part = [&](std::int64_t first) {
    return Batch{.ids_bc = ids_bc.narrow(1, first, segment), .segments_bc = segments_bc.narrow(1, first, segment)};
  };
  const auto memory = model.new_memory();
  model.evaluate(part(0), memory.get());
  const auto saved = memory->tensors();
  for (const auto& [name, tensor] : saved) CHECK_FALSE(tensor.requires_grad());
  // Finite differences of the second segment's loss while the state before it stays as it is.
  const auto loss = [&] {
    const auto again = model.new_memory();
    again->load(saved, "the state");
    return model.evaluate(part(segment), again.get()).square().mean();
  };
  model.zero_grad();
  loss().backward();
  constexpr double small = 1e-5;
  for (auto& parameter : model.named_parameters()) {
    INFO(parameter.key());
    auto& value = parameter.value();
    const torch::NoGradGuard no_grad;
    for (const auto at : {std::int64_t{0}, value.numel() / 2, value.numel() - 1}) {
      auto entry = value.view(-1).select(0, at);
      const double original = entry.item<double>();
      entry.fill_(original + small);
      const double above = loss().item<double>();
      entry.fill_(original - small);
      const double below = loss().item<double>();
      entry.fill_(original);
      const double expected = (above - below) / (2 * small);
      CHECK(std::abs(value.grad().view(-1)[at].item<double>() - expected) <= 1e-8 + 1e-6 * std::abs(expected));
    }
  }
}

TEST_CASE("the parameters of a recurrent model are counted, and have PyTorch's names and shapes", "[recurrent]") {
  const auto cell = GENERATE(RecurrentCell::lstm, RecurrentCell::gru);
  auto config = config_of(cell);
  config.layers = GENERATE(1, 3);
  config.embedding.tie = GENERATE(true, false);
  const RecurrentModel model(config, vocabulary);
  ExperimentConfig experiment;
  const auto set = [&](auto kind) {
    static_cast<RecurrentConfig&>(kind) = config;
    experiment.model = kind;
  };
  cell == RecurrentCell::lstm ? set(LstmConfig()) : set(GruConfig());
  CHECK(count_parameters(model).all == count_parameters(experiment, vocabulary, 2));
  const auto own = model.named_parameters();
  const auto check_names = [&](const auto& layers, const std::string& prefix) {
    std::size_t found = 0;
    for (const auto& parameter : layers->named_parameters()) {
      const auto* same = own.find(prefix + parameter.key());
      REQUIRE(same != nullptr);
      CHECK(same->sizes() == parameter.value().sizes());
      ++found;
    }
    CHECK(found + (config.embedding.tie ? 1 : 2) == own.size());
  };
  if (cell == RecurrentCell::lstm)
    check_names(torch::nn::LSTM(torch::nn::LSTMOptions(6, 6).num_layers(config.layers)), "lstm.");
  else
    check_names(torch::nn::GRU(torch::nn::GRUOptions(6, 6).num_layers(config.layers)), "gru.");
}

TEST_CASE("a recurrent model starts as PyTorch's does, each parameter by its name", "[recurrent]") {
  auto config = any_config();
  config.width = 64;
  RecurrentModel two(config, vocabulary);
  config.layers = 1;
  RecurrentModel one(config, vocabulary);
  initialise(two, 3);
  initialise(one, 3);
  const auto of_two = two.named_parameters();
  for (const auto& parameter : one.named_parameters()) CHECK(torch::equal(parameter.value(), of_two[parameter.key()]));
  for (const auto& [name, value, spec] : specified_parameters(two)) {
    INFO(name);
    const bool is_matrix = name.find(".weight_") != std::string::npos,
               is_bias = name.find(".bias_") != std::string::npos;
    CHECK((spec.decay == Decay::none) == is_bias);
    CHECK(spec.hidden_matrices == (is_matrix ? config.gates() : 0));
    if (!is_matrix && !is_bias) continue;
    CHECK(value.abs().max().item<double>() <= 0.125);
    CHECK(value.abs().max().item<double>() > 0.12);
    CHECK(value.std().item<double>() == Approx(0.125 / std::sqrt(3.0)).epsilon(0.1));
    CHECK(std::abs(value.mean().item<double>()) < 0.02);
  }
  CHECK_FALSE(torch::equal(weight_of(two, "weight_ih", 0), weight_of(two, "weight_ih", 1)));
}

TEST_CASE("what an optimiser writes into the buffer is what a recurrent model computes with", "[recurrent]") {
  const auto config = any_config();
  RecurrentModel model(config, vocabulary);
  initialise(model, 3);
  ParameterBuffer buffer(model);
  const auto ids_bc = random_ids(segment);
  const auto before_bcv = model.evaluate({.ids_bc = ids_bc}).detach();
  for (const auto& view : buffer.views()) {
    INFO(view.name);
    const torch::NoGradGuard no_grad;
    auto part = ParameterBuffer::part(buffer.values(), view);
    const auto kept = part.clone();
    part.add_(0.5);
    CHECK_FALSE(torch::allclose(model.evaluate({.ids_bc = ids_bc}), before_bcv, 1e-4, 1e-5));
    part.copy_(kept);
  }
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}), before_bcv));
  model.evaluate({.ids_bc = ids_bc}).square().sum().backward();
  for (const auto& view : buffer.views()) {
    INFO(view.name);
    CHECK(ParameterBuffer::part(buffer.gradients(), view).abs().sum().item<double>() > 0);
  }
}

TEST_CASE("dropout of a recurrent model is on embeddings and behind every layer, from the pass's numbers",
          "[recurrent]") {
  auto config = any_config();
  config.dropout = 0.5;
  config.embedding.dropout = GENERATE(0.0, 0.25);
  RecurrentModel model(config, vocabulary);
  initialise(model, 3);
  const auto generator = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const Batch given{.ids_bc = torch::arange(24).remainder(vocabulary).view({4, 6})};
  const auto before = generator();
  StepPasses passes(1, torch::kCPU);
  const auto hidden = [&](std::int64_t of_step) {
    passes.set_step(of_step);
    auto pass = passes.pass(0);
    auto x_bcd = model.hidden(given, nullptr, pass);
    CHECK(pass.random.place() == 3 + (config.embedding.dropout > 0 ? 1 : 0));
    return x_bcd;
  };
  const auto x_bcd = hidden(1);
  x_bcd.sum().backward();
  CHECK(torch::equal(generator(), before));
  CHECK(torch::equal(hidden(1), x_bcd));
  CHECK_FALSE(torch::equal(hidden(2), x_bcd));
  const double dropped = (x_bcd == 0).to(torch::kDouble).mean().item<double>();
  CHECK(dropped == Approx(0.5).margin(0.15));
  Pass evaluates;
  CHECK((model.hidden(given, nullptr, evaluates) != 0).all().item<bool>());
}

TEST_CASE("under autocast the recurrence stays in float32, and the output layer does not", "[recurrent]") {
  const auto precision = GENERATE(Precision::bf16, Precision::fp16);
  auto model = model_of(any_config(), torch::kFloat);
  const Batch given{.ids_bc = random_ids(segment)};
  Pass plain, cast;
  const auto expected_bcd = model.hidden(given, nullptr, plain);
  const AutocastScope autocast(precision, torch::kCPU);
  const auto x_bcd = model.hidden(given, nullptr, cast);
  CHECK(torch::equal(x_bcd, expected_bcd));
  const auto logits_bcv = model.logits_of(x_bcd);
  CHECK(logits_bcv.scalar_type() == (precision == Precision::bf16 ? torch::kBFloat16 : torch::kHalf));
  logits_bcv.to(torch::kFloat).square().mean().backward();
  for (const auto& parameter : model.parameters()) CHECK(parameter.grad().isfinite().all().item<bool>());
}

}  // namespace metaformer
