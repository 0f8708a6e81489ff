#include <limits>

#include "model/parameters.h"
#include "model/token_model.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("a NaN in one parameter is found by name", "[parameters]") {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = 12;
  Gpt model(config, 11);
  initialise(model, 1);
  ParameterBuffer parameters(model);
  CHECK(parameters.first_not_finite(parameters.values()) == nullptr);
  const auto value = GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const torch::NoGradGuard no_grad;
  for (const auto& view : parameters.views()) {
    const auto kept = view.parameter.clone();
    view.parameter.flatten()[view.count - 1].fill_(value);
    const auto* found = parameters.first_not_finite(parameters.values());
    REQUIRE(found != nullptr);
    CHECK(found->name == view.name);
    view.parameter.copy_(kept);
  }
}

}  // namespace metaformer
