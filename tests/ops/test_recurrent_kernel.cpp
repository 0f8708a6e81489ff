// The CPU kernels of the gates of recurrent layers.

#include <cmath>

#include "cpu/decoding.h"
#include "support/torch_catch.h"

namespace metaformer::test_recurrent_kernel {

namespace {

constexpr std::int64_t batch = 3;

// One of several parts that are side by side in every row.
torch::Tensor part(const torch::Tensor& all_bg, std::int64_t number, std::int64_t width) {
  return all_bg.narrow(1, number * width, width).to(torch::kDouble);
}

}  // namespace

TEST_CASE("the gates of a token equal their formulas at any width and for values of any size", "[recurrent]") {
  const std::int64_t width = GENERATE(1, 15, 16, 17, 48, 100);
  const double size = GENERATE(0.1, 1.0, 10.0, 1000.0);
  torch::manual_seed(width);
  const auto random = [&](std::int64_t parts, double scale) { return scale * torch::randn({batch, parts * width}); };
  const auto x_bg = random(4, size), y_bg = random(4, size), before_bd = random(1, 1), cell_bd = random(1, 2);
  const auto sum = [&](std::int64_t gate) { return part(x_bg, gate, width) + part(y_bg, gate, width); };

  auto h_bd = before_bd.clone(), c_bd = cell_bd.clone();
  step_lstm(x_bg.const_data_ptr<float>(), y_bg.const_data_ptr<float>(), h_bd.data_ptr<float>(), c_bd.data_ptr<float>(),
            batch, width);
  const auto expected_c_bd =
      torch::sigmoid(sum(1)) * cell_bd.to(torch::kDouble) + torch::sigmoid(sum(0)) * torch::tanh(sum(2));
  CHECK((c_bd - expected_c_bd).abs().max().item<double>() < 2e-6);
  CHECK((h_bd - torch::sigmoid(sum(3)) * torch::tanh(expected_c_bd)).abs().max().item<double>() < 2e-6);

  const auto x3_bg = x_bg.narrow(1, 0, 3 * width).contiguous(), y3_bg = y_bg.narrow(1, 0, 3 * width).contiguous();
  h_bd = before_bd.clone();
  step_gru(x3_bg.const_data_ptr<float>(), y3_bg.const_data_ptr<float>(), h_bd.data_ptr<float>(), batch, width);
  const auto reset = torch::sigmoid(sum(0)), update = torch::sigmoid(sum(1));
  const auto fresh = torch::tanh(part(x_bg, 2, width) + reset * part(y_bg, 2, width));
  // The error is relative to the sums of the gates.
  const double tolerance = 3e-6 * std::max(1.0, size);
  CHECK((h_bd - ((1 - update) * fresh + update * before_bd.to(torch::kDouble))).abs().max().item<double>() < tolerance);
}

TEST_CASE("a NaN reaches only the states of its sequence", "[recurrent]") {
  constexpr std::int64_t width = 20;
  auto x_bg = torch::zeros({batch, 4 * width}), y_bg = torch::zeros({batch, 4 * width});
  x_bg[1].fill_(std::nan(""));
  auto h_bd = torch::zeros({batch, width}), c_bd = torch::zeros({batch, width});
  step_lstm(x_bg.const_data_ptr<float>(), y_bg.const_data_ptr<float>(), h_bd.data_ptr<float>(), c_bd.data_ptr<float>(),
            batch, width);
  CHECK(h_bd[1].isnan().all().item<bool>());
  CHECK(h_bd[0].isfinite().all().item<bool>());
  CHECK(h_bd[2].isfinite().all().item<bool>());
}

}  // namespace metaformer::test_recurrent_kernel
