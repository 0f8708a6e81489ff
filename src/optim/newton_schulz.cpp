#include "optim/newton_schulz.h"

namespace metaformer {

namespace {

// X <- a X + b (X X') X + c (X X')^2 X.
constexpr double a = 3.4445, b = -4.7750, c = 2.0315;

// b A + c A^2 of A = X X'.
torch::Tensor factor(const torch::Tensor& gram_mrr) { return torch::baddbmm(gram_mrr, gram_mrr, gram_mrr, b, c); }

torch::Tensor iterate(torch::Tensor x_mrc, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto gram_mrr = torch::bmm(x_mrc, x_mrc.transpose(1, 2));
    x_mrc = torch::baddbmm(x_mrc, factor(gram_mrr), x_mrc, a);
  }
  return x_mrc;
}

// The same with products of r x r matrices between the first and the last: every iteration multiplies X by a polynomial
// P in A = X X' and so A by P^2. Needs more digits than bfloat16 has: A has the squares of the singular values.
torch::Tensor iterate_gram(const torch::Tensor& x_mrc, std::int64_t iterations) {
  auto gram_mrr = torch::bmm(x_mrc, x_mrc.transpose(1, 2));
  torch::Tensor all_mrr;
  for (std::int64_t i = 0; i < iterations; ++i) {
    auto factor_mrr = factor(gram_mrr);
    factor_mrr.diagonal(0, 1, 2).add_(a);
    all_mrr = i == 0 ? factor_mrr : torch::bmm(factor_mrr, all_mrr);
    if (i + 1 < iterations) gram_mrr = torch::bmm(torch::bmm(factor_mrr, gram_mrr), factor_mrr);
  }
  return torch::bmm(all_mrr, x_mrc);
}

}  // namespace

torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type) {
  const auto rows = x_mrc.size(1), columns = x_mrc.size(2);
  if (rows > columns) return orthogonalise(x_mrc.transpose(1, 2), iterations, type).transpose(1, 2);
  constexpr double least_norm = 1e-7;
  const auto norm_m11 = torch::linalg_vector_norm(x_mrc, 2, at::IntArrayRef({1, 2}), /*keepdim=*/true);
  const auto unit_mrc = (x_mrc / norm_m11.clamp_min(least_norm)).to(type);
  const bool is_wide = columns >= 2 * rows, has_digits = type != torch::kBFloat16 && type != torch::kHalf;
  return is_wide && has_digits ? iterate_gram(unit_mrc, iterations) : iterate(unit_mrc, iterations);
}

}  // namespace metaformer
