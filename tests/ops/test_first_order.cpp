// Operators with a backward pass of their own give no gradients of gradients, and say so.

#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/linear.h"
#include "ops/region_vectors.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("second derivatives are refused by every operator of our own", "[first_order]") {
  const auto x_bnck = torch::rand({2, 2, 4, 8}).requires_grad_(true);
  const auto weight_dd = torch::rand({8, 8}).requires_grad_(true);
  Pass pass{.training = true, .random = RandomStream(torch::ones({}, torch::kLong))};
  const std::vector<torch::Tensor> results = {
      activate(GeluConfig{}, x_bnck),
      gate(SiluConfig{}, x_bnck),
      dropout(x_bnck, 0.5, pass),
      host_attention(x_bnck, x_bnck, x_bnck, {.causal = true}, pass),
      host_attention(torch::cat({x_bnck, x_bnck, x_bnck}, 3).select(1, 0).contiguous(), 2, {}, pass),
      linear_product(x_bnck, weight_dd, {}),
      cross_entropy_sum(x_bnck.flatten(0, 2), torch::zeros({16}, torch::kLong)),
      rms_norm(x_bnck, torch::ones(8).requires_grad_(true), 1e-6),
      rotate_pairs(x_bnck, torch::rand({4, 4}), torch::rand({4, 4})),
  };
  const auto check = [](const torch::Tensor& y, const torch::Tensor& x) {
    CHECK_THROWS_WITH(torch::autograd::grad({y.pow(2).sum()}, {x}, {}, true, /*create_graph=*/true),
                      Catch::Contains("no second derivatives"));
  };
  for (const auto& y : results) check(y, x_bnck);
  const auto rows_bcp = torch::zeros({2, 3, 1}, torch::kInt);
  const auto bias_d = torch::ones(8).requires_grad_(true);
  check(region_vectors(rows_bcp, weight_dd, bias_d), bias_d);
  check(greatest_region_vectors(rows_bcp, weight_dd, bias_d), bias_d);
}

}  // namespace metaformer
