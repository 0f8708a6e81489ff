// Short filters over tokens: the CPU kernel and the operators against a sum pair by pair in float64.

#include <torch/autograd.h>

#include "ops/causal_convolution.h"
#include "support/torch_catch.h"

namespace metaformer::test_causal_convolution {

namespace {

using torch::Tensor;

constexpr std::int64_t batch = 2;

Tensor by_definition(const CausalConvolution& convolution, const Tensor& x_bed, const Tensor& segment_be,
                     std::int64_t newest) {
  const auto e = x_bed.size(1), size = convolution.filter_dj.size(1);
  std::vector<Tensor> texts;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<Tensor> tokens;
    for (auto t = e - newest; t < e; ++t) {
      auto z = convolution.bias_d.defined() ? convolution.bias_d : torch::zeros({x_bed.size(2)}, torch::kDouble);
      for (std::int64_t back = 0; back < size && back <= t; ++back)
        if (!segment_be.defined() || segment_be[b][t].equal(segment_be[b][t - back]))
          z = z + convolution.filter_dj.select(1, size - 1 - back) * x_bed[b][t - back];
      tokens.push_back(convolution.silu ? z * torch::sigmoid(z) : z);
    }
    texts.push_back(torch::stack(tokens));
  }
  return torch::stack(texts);
}

// The gradients of x, the filter and the bias, then y, computed in a type.
template <class Convolve>
std::vector<Tensor> computed(const Convolve& convolve, CausalConvolution convolution, const Tensor& given_bed,
                             const Tensor& segment_be, std::int64_t newest, torch::ScalarType type) {
  const auto leaf = [&](const Tensor& x) { return x.detach().to(type).clone().requires_grad_(); };
  const auto x_bed = leaf(given_bed);
  std::vector<Tensor> leaves = {x_bed, convolution.filter_dj = leaf(convolution.filter_dj)};
  if (convolution.bias_d.defined()) leaves.push_back(convolution.bias_d = leaf(convolution.bias_d));
  const auto y = convolve(convolution, x_bed, segment_be, newest);
  torch::manual_seed(3);
  auto all = torch::autograd::grad({(y * torch::randn(y.sizes(), torch::kDouble).to(type)).sum()}, leaves);
  all.push_back(y);
  return all;
}

}  // namespace

TEST_CASE("short convolutions and their gradients equal sums over the tokens of the segment", "[causal_convolution]") {
  const auto size = GENERATE(1, 2, 4, 9, 30), width = GENERATE(1, 16, 70), tokens = GENERATE(1, 3, 21);
  const bool segmented = GENERATE(false, true), silu = GENERATE(false, true);
  CAPTURE(size, width, tokens, segmented, silu);
  torch::manual_seed(2);
  const auto x_bed = torch::randn({batch, tokens, width}, torch::kDouble);
  CausalConvolution convolution{.filter_dj = torch::randn({width, size}, torch::kDouble), .silu = silu};
  if (silu) convolution.bias_d = torch::randn({width}, torch::kDouble);
  Tensor segment_be;
  if (segmented) {
    segment_be = torch::arange(tokens).div(5, "floor").repeat({batch, 1});
    segment_be.select(0, 1).masked_fill_(torch::arange(tokens).remainder(6) == 2, -1);
  }
  for (const auto newest : {static_cast<std::int64_t>(tokens), (static_cast<std::int64_t>(tokens) + 1) / 2}) {
    const auto of = [&](const auto& convolve, torch::ScalarType type) {
      return computed(convolve, convolution, x_bed, segment_be, newest, type);
    };
    const auto expected = of(by_definition, torch::kDouble), exact = of(causal_convolution, torch::kDouble),
               by_kernel = of(causal_convolution, torch::kFloat),
               by_operators = of(causal_convolution_by_operators, torch::kFloat);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Where sums cancel, as in the slope of SiLU near its minimum, an error is relative to the terms.
      const auto error_of = [&](const Tensor& x) {
        return (x - expected[i]).norm().item<double>() / (1 + expected[i].norm().item<double>());
      };
      CHECK(error_of(exact[i]) < 1e-14);
      CHECK(error_of(by_kernel[i]) < 2e-6);
      CHECK(error_of(by_operators[i]) < 2e-6);
    }
  }
}

TEST_CASE("short convolutions in bfloat16 are rounded once", "[causal_convolution]") {
  const auto x_bed = torch::randn({2, 7, 20}).to(torch::kBFloat16);
  const CausalConvolution convolution{.filter_dj = torch::randn({20, 4}), .silu = true};
  const auto y = causal_convolution(convolution, x_bed, {}, 7);
  CHECK(torch::equal(y, causal_convolution(convolution, x_bed.to(torch::kFloat), {}, 7).to(torch::kBFloat16)));
}

}  // namespace metaformer::test_causal_convolution
