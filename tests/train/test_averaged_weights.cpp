#include <cmath>

#include "ops/linear.h"
#include "support/torch_catch.h"
#include "train/optim/optimizer.h"

namespace metaformer {

TEST_CASE("the average of weights is that of float64, and is only lent", "[average]") {
  torch::manual_seed(0);
  const double decay = GENERATE(0.5, 0.999);
  Linear layer(7, 5, /*bias=*/true);
  ParameterBuffer parameters(*layer);
  WeightAverage average(parameters, decay);
  auto sum = torch::zeros_like(parameters.values(), torch::kDouble);
  for (int step = 1; step <= 50; ++step) {
    parameters.values().normal_();
    average.update(step);
    sum = decay * sum + (1 - decay) * parameters.values().to(torch::kDouble);
    const auto expected = sum / (1 - std::pow(decay, step));
    const auto in_training = parameters.values().clone();
    {
      const WeightAverage::Use use(average);
      CHECK(torch::allclose(parameters.values().to(torch::kDouble), expected, 1e-5, 1e-6));
      for (const auto& [name, value] : average.state())
        CHECK(torch::equal(value, ParameterBuffer::part(in_training, parameters.views()[name == "trained.bias"])));
    }
    CHECK(torch::equal(parameters.values(), in_training));
  }
  average.reset();
  const auto again = parameters.values().clone();
  const WeightAverage::Use use(average);
  CHECK(torch::equal(parameters.values(), again));
}

TEST_CASE("without a decay there is no average", "[average]") {
  Linear layer(3, 2, /*bias=*/false);
  ParameterBuffer parameters(*layer);
  WeightAverage average(parameters, 0);
  average.update(1);
  parameters.values().fill_(3);
  const WeightAverage::Use use(average);
  CHECK(torch::equal(parameters.values(), torch::full_like(parameters.values(), 3)));
  CHECK(average.state().empty());
}

}  // namespace metaformer
