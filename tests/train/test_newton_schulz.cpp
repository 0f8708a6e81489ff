#include <algorithm>

#include "support/torch_catch.h"
#include "train/optim/optimizers.h"

namespace metaformer {

namespace {

// As Jordan et al. write it, one matrix at a time in float64.
torch::Tensor reference(const torch::Tensor& x_mrc, std::int64_t iterations) {
  std::vector<torch::Tensor> results;
  for (const auto& matrix : x_mrc.unbind()) {
    auto x = matrix.to(torch::kDouble);
    x = x / x.norm();
    for (std::int64_t i = 0; i < iterations; ++i) {
      const auto gram = x.mm(x.t());
      x = 3.4445 * x - 4.7750 * gram.mm(x) + 2.0315 * gram.mm(gram).mm(x);
    }
    results.push_back(x);
  }
  return torch::stack(results);
}

torch::Tensor of_low_rank(std::int64_t matrices, std::int64_t rows, std::int64_t columns) {
  return torch::bmm(torch::randn({matrices, rows, 2}), torch::randn({matrices, 2, columns})) +
         1e-3 * torch::randn({matrices, rows, columns});
}

}  // namespace

TEST_CASE("Newton-Schulz iterations are those of float64", "[optimizer]") {
  torch::manual_seed(0);
  const auto [rows, columns] = GENERATE(table<std::int64_t, std::int64_t>({{32, 32}, {32, 48}, {32, 128}, {128, 32}}));
  const std::int64_t iterations = GENERATE(1, 2, 5);
  const bool low_rank = GENERATE(false, true);
  INFO(rows << " x " << columns << ", " << iterations << " iterations" << (low_rank ? ", nearly of rank 2" : ""));
  const auto x_mrc = low_rank ? of_low_rank(3, rows, columns) : torch::randn({3, rows, columns});
  const auto expected = reference(x_mrc, iterations);
  const auto given = orthogonalise(x_mrc, iterations, torch::kFloat).to(torch::kDouble);
  // Wide matrices go by their Gram matrix, which squares the condition number of 1,000 and more.
  const bool loses_digits = low_rank && std::max(rows, columns) >= 2 * std::min(rows, columns);
  CHECK(((given - expected).norm() / expected.norm()).item<double>() < (loses_digits ? 1e-3 : 1e-4));
  if (low_rank) return;  // its small singular values are below what bfloat16 resolves
  const auto coarse = orthogonalise(x_mrc, iterations, torch::kBFloat16).to(torch::kDouble);
  CHECK(((coarse - expected).norm() / expected.norm()).item<double>() < 0.03);
}

TEST_CASE("five iterations bring singular values near 1, and leave 0 alone", "[optimizer]") {
  torch::manual_seed(0);
  const auto near = torch::linalg_svdvals(orthogonalise(torch::randn({4, 24, 96}), 5, torch::kFloat));
  CHECK(near.min().item<double>() > 0.65);
  CHECK(near.max().item<double>() < 1.25);
  CHECK(torch::equal(orthogonalise(torch::zeros({1, 3, 3}), 5, torch::kFloat), torch::zeros({1, 3, 3})));
}

}  // namespace metaformer
