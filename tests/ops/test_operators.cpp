// Properties of every operator with its own backward pass.

#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/kernel.h"
#include "ops/linear.h"
#include "ops/region_vectors.h"
#include "support/threads.h"
#include "support/torch_catch.h"

namespace metaformer::test_operators {

namespace {

Pass training_pass() { return {.training = true, .random = RandomStream(torch::ones({}, torch::kLong))}; }

}  // namespace

TEST_CASE("every operator of the program refuses second derivatives", "[operators]") {
  const auto x_bnck = torch::rand({2, 2, 4, 8}).requires_grad_(true);
  const auto weight_dd = torch::rand({8, 8}).requires_grad_(true);
  auto pass = training_pass();
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

TEST_CASE("a node of the program has a name, and runs backward only once, whatever it has saved", "[operators]") {
  const auto x_d = torch::rand({3}).requires_grad_(true);
  const bool saves = GENERATE(false, true);
  const auto forward = [&](Tensors& saved) {
    if (saves) saved = {x_d};
    return 2 * x_d;
  };
  const auto y_d =
      own_node("a product with 2", {x_d}, forward, [](const Backward& in) -> Tensors { return {2 * in.dy[0]}; });
  CHECK(y_d.grad_fn()->name() == "a product with 2");
  y_d.sum().backward();
  CHECK(torch::equal(x_d.grad(), torch::full(3, 2.0)));
  CHECK_THROWS_WITH(y_d.sum().backward(), Catch::Contains("a second time"));
}

TEST_CASE("a node of the program may return an input, and some of its results may be unused", "[operators]") {
  const auto x_d = torch::rand({3}).requires_grad_(true), other_d = torch::rand({3}).requires_grad_(true);
  const auto forward = [&](Tensors&) -> Tensors { return {x_d, x_d + other_d}; };
  const auto results = own_nodes("two results", {x_d, other_d, {}}, forward, [](const Backward& in) -> Tensors {
    return {in.dy[0] + in.dy[1], in.dy[1], {}};
  });
  CHECK(x_d.is_leaf());
  (3 * results[0]).sum().backward();
  CHECK(torch::equal(x_d.grad(), torch::full(3, 3.0)));
  CHECK(torch::equal(other_d.grad(), torch::zeros(3)));
}

TEST_CASE("the number of threads changes no bit of results and gradients", "[operators]") {
  const auto targets_t = torch::randint(-1, 333, {200}, torch::kLong);
  const auto gain_d = torch::randn({96}).requires_grad_();
  const auto rows_bcp = torch::randint(27, {4, 11, 3}, torch::kInt);
  const auto weight_rd = torch::randn({27, 200}).requires_grad_(), bias_d = torch::randn({200}).requires_grad_();
  const auto k_bnck = torch::randn({2, 3, 70, 24}).requires_grad_();
  using Operator = std::function<torch::Tensor(const torch::Tensor&)>;
  const auto [name, sizes, apply] = GENERATE_COPY(table<const char*, std::vector<std::int64_t>, Operator>({
      {"cross_entropy_sum", {200, 333}, [=](const auto& x) { return cross_entropy_sum(x, targets_t, 0.1); }},
      {"rms_norm", {700, 96}, [=](const auto& x) { return rms_norm(x, gain_d, 1e-3); }},
      {"region_vectors", {200}, [=](const auto& x) { return region_vectors(rows_bcp, weight_rd, bias_d) * x; }},
      {"greatest_region_vectors",
       {200},
       [=](const auto& x) { return greatest_region_vectors(rows_bcp, weight_rd, bias_d) * x; }},
      {"host_attention",
       {2, 3, 70, 24},
       [=](const auto& q) {
         Pass pass;
         return host_attention(q, k_bnck, k_bnck, {.causal = true, .scale = 0.3}, pass);
       }},
      {"dropout",
       {300'007},
       [](const auto& x) {
         auto pass = training_pass();
         return dropout(x, 0.4, pass);
       }},
  }));
  CAPTURE(name);
  const auto x = torch::randn(sizes);
  const auto results = [&, &apply = apply](int count) {
    const Threads threads(count);
    const std::vector<torch::Tensor> leaves = {x.clone().requires_grad_(), gain_d, weight_rd, bias_d, k_bnck};
    for (const auto& leaf : leaves) leaf.mutable_grad() = torch::Tensor();
    std::vector<torch::Tensor> all = {apply(leaves.front())};
    all.front().sin().sum().backward();
    for (const auto& leaf : leaves)
      if (leaf.grad().defined()) all.push_back(leaf.grad().is_sparse() ? leaf.grad().to_dense() : leaf.grad().clone());
    return all;
  };
  const auto one = results(1), three = results(3);
  REQUIRE(one.size() == three.size());
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(torch::equal(one[i], three[i]));
}

}  // namespace metaformer::test_operators
