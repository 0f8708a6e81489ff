#include <cmath>

#include "ops/linear.h"
#include "optim/adamw.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("AdamW follows its formula, decays matrices alone, and resumes exactly", "[optimizer]") {
  torch::manual_seed(0);
  Linear layer(3, 2, /*bias=*/true);
  layer->weight().data().normal_();
  ParameterBuffer parameters(*layer);
  const AdamWConfig config;
  AdamW optimizer(parameters, config);
  auto weight = layer->weight().detach().to(torch::kDouble).clone(),
       bias = layer->bias().detach().to(torch::kDouble).clone();
  std::array<torch::Tensor, 2> values = {weight, bias};
  std::array<torch::Tensor, 2> first = {torch::zeros_like(weight), torch::zeros_like(bias)},
                               second = {first[0].clone(), first[1].clone()};
  std::unique_ptr<AdamW> resumed;
  for (int step = 1; step <= 5; ++step) {
    const double rate = 0.1 / step;
    parameters.gradients().normal_();
    const std::array<torch::Tensor, 2> gradients = {layer->weight().grad().to(torch::kDouble),
                                                    layer->bias().grad().to(torch::kDouble)};
    for (std::size_t i = 0; i < 2; ++i) {
      first[i] = 0.9 * first[i] + 0.1 * gradients[i];
      second[i] = 0.99 * second[i] + 0.01 * gradients[i].square();
      values[i] *= 1 - rate * (i == 0 ? 0.1 : 0);
      values[i] -=
          rate * (first[i] / (1 - std::pow(0.9, step))) / ((second[i] / (1 - std::pow(0.99, step))).sqrt() + 1e-8);
    }
    auto& active = resumed ? *resumed : optimizer;
    active.step(rate);
    if (step == 3) {
      const auto saved = from_safetensors(to_safetensors(optimizer.state()), "t");
      resumed = std::make_unique<AdamW>(parameters, config);
      resumed->load_state(saved, "t");
    }
    CHECK(torch::allclose(layer->weight().to(torch::kDouble), values[0], 1e-5, 1e-6));
    CHECK(torch::allclose(layer->bias().to(torch::kDouble), values[1], 1e-5, 1e-6));
  }
}

}  // namespace metaformer
