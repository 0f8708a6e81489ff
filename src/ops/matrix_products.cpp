#include "ops/matrix_products.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "base/error.h"
#include "base/mkl_path.h"

namespace metaformer {

namespace {

// Small whole numbers without a pattern that a wrong product could keep.
torch::Tensor whole_numbers(std::int64_t rows, std::int64_t columns, std::int64_t step) {
  return (torch::arange(rows * columns) * step).remainder(31).sub(15).view({rows, columns});
}

bool is_right(std::int64_t rows, std::int64_t inner, std::int64_t columns, bool transposed) {
  const auto a = whole_numbers(rows, inner, 7);
  const auto b = transposed ? whole_numbers(columns, inner, 11).t() : whole_numbers(inner, columns, 11);
  const auto expected = torch::mm(a, b).to(torch::kDouble);
  return torch::equal(torch::mm(a.to(torch::kFloat), b.to(torch::kFloat)).to(torch::kDouble), expected) &&
         torch::equal(torch::mm(a.to(torch::kDouble), b.to(torch::kDouble)), expected);
}

}  // namespace

bool products_are_right() {
  const torch::NoGradGuard no_grad;
  // Below, at and above what blocks and vectors hold.
  return is_right(3, 5, 7, false) && is_right(64, 48, 96, false) && is_right(65, 129, 33, true);
}

void require_right_products() {
  const auto path = mkl_path();
  if (products_are_right()) return;
  throw Error(ExitCode::failure, "this CPU's matrix products are wrong (" + describe(path) +
                                     "); set METAFORMER_MKL=own in the environment");
}

}  // namespace metaformer
