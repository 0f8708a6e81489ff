// RMS normalisation against its formula in float64.

#include "ops/functional.h"
#include "support/torch_catch.h"

namespace metaformer::test_rms_norm {

namespace {

constexpr double epsilon = 1e-3;

torch::Tensor by_definition(const torch::Tensor& x, const torch::Tensor& gain_d) {
  return x / (x.square().mean(-1, true) + epsilon).sqrt() * gain_d;
}

struct Gradients {
  torch::Tensor y, dx, dgain_d;
};

template <class Normalise>
Gradients gradients_of(const torch::Tensor& x, const torch::Tensor& gain_d, const torch::Tensor& dy,
                       Normalise normalise) {
  auto leaf = x.detach().clone().requires_grad_(), gain = gain_d.detach().clone().requires_grad_();
  const auto y = normalise(leaf, gain);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), leaf.grad(), gain.grad()};
}

Gradients computed(const torch::Tensor& x, const torch::Tensor& gain_d, const torch::Tensor& dy) {
  return gradients_of(x, gain_d, dy, [](const auto& a, const auto& g) { return rms_norm(a, g, epsilon); });
}

Gradients exact(const torch::Tensor& x, const torch::Tensor& gain_d, const torch::Tensor& dy) {
  return gradients_of(x.to(torch::kDouble), gain_d.to(torch::kDouble), dy.to(torch::kDouble), by_definition);
}

}  // namespace

TEST_CASE("RMS norm and its gradients equal the formula", "[rms_norm]") {
  const auto width = GENERATE(1, 15, 16, 40, 128), rows = GENERATE(1, 3, 50);
  CAPTURE(width, rows);
  const auto x = 3 * torch::randn({2, rows, width}), gain = torch::randn({width}), dy = torch::randn({2, rows, width});
  const auto ours = computed(x, gain, dy), expected = exact(x, gain, dy);
  CHECK(relative_error(ours.y, expected.y) < 1e-6);
  // A sum over rows may cancel, so its rounding is relative to its terms.
  const auto terms_d = (dy * expected.y / gain).abs().flatten(0, 1).sum(0);
  CHECK(torch::norm(ours.dgain_d - expected.dgain_d).item<double>() < 3e-7 * torch::norm(terms_d).item<double>());
  // The gradient of a row of one number nearly cancels, so its rounding is also relative to its terms.
  const double cancelled = width == 1 ? (dy * gain / x).norm().item<double>() / expected.dx.norm().item<double>() : 1;
  CHECK(relative_error(ours.dx, expected.dx) < 1e-6 * std::max(1.0, cancelled));
}

TEST_CASE("RMS norm gives the same results for inputs in another layout or type", "[rms_norm]") {
  const auto x = torch::randn({40, 6}), gain = torch::randn({40}), dy = torch::randn({6, 40});
  const auto expected = exact(x.t(), gain, dy);
  CHECK(relative_error(computed(x.t(), gain, dy).dx, expected.dx) < 1e-6);
  CHECK(relative_error(computed(x.t(), gain, dy.t().contiguous().t()).dx, expected.dx) < 1e-6);
  const auto wide = computed(x.t().to(torch::kDouble), gain.to(torch::kDouble), dy);
  CHECK(relative_error(wide.dx, expected.dx) < 1e-14);
  CHECK(relative_error(wide.dgain_d, expected.dgain_d) < 1e-14);
  // For bfloat16 inputs the statistics and the result are in float32.
  const auto narrow = x.t().to(torch::kBFloat16);
  const auto of_narrow = computed(narrow, gain, dy);
  CHECK(of_narrow.y.scalar_type() == torch::kFloat);
  CHECK(relative_error(of_narrow.y, exact(narrow, gain, dy).y) < 1e-6);
  CHECK(relative_error(of_narrow.dx, exact(narrow, gain, dy).dx) < 0.004);
}

TEST_CASE("RMS norm of zeros is zeros, with finite gradients", "[rms_norm]") {
  const auto ours = computed(torch::zeros({3, 20}), torch::ones(20), torch::ones({3, 20}));
  CHECK(ours.y.abs().max().item<double>() == 0);
  CHECK(ours.dx.isfinite().all().item<bool>());
}

}  // namespace metaformer::test_rms_norm
