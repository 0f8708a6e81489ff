// Products of a few vectors with a matrix, stored in float32 or in bfloat16.

#include <cmath>

#include "cpu/decoding.h"
#include "support/torch_catch.h"

namespace metaformer::test_multiply_rows {

namespace {

// A layer with its matrix in both types: `bits_oi` has the values of `weight_oi`, rounded to bfloat16.
struct Layer {
  Layer(std::int64_t outputs, std::int64_t inputs)
      : weight_oi(torch::randn({outputs, inputs})),
        bits_oi(weight_oi.to(torch::kBFloat16)),
        bias_o(torch::randn(outputs)) {}

  LinearRows rows(WeightPrecision precision) const {
    const bool narrow = precision == WeightPrecision::bf16;
    return {.weight = narrow ? nullptr : weight_oi.const_data_ptr<float>(),
            .bf16_weight = narrow ? static_cast<const std::uint16_t*>(bits_oi.const_data_ptr()) : nullptr,
            .bias = bias_o.defined() ? bias_o.const_data_ptr<float>() : nullptr,
            .inputs = weight_oi.size(1),
            .outputs = weight_oi.size(0)};
  }

  torch::Tensor weight_oi, bits_oi, bias_o;
};

torch::Tensor products(const LinearRows& rows, const torch::Tensor& x_bi) {
  auto y_bo = torch::empty({x_bi.size(0), rows.outputs});
  multiply_rows(rows, x_bi.const_data_ptr<float>(), y_bo.data_ptr<float>(), x_bi.size(0), 0, rows.outputs);
  return y_bo;
}

// The greatest error, as a fraction of the bound of sixteen float32 sums that are then added, and the bias.
double fraction_of_bound(const torch::Tensor& y_bo, const torch::Tensor& x_bi, const torch::Tensor& weight_oi,
                         const torch::Tensor& bias_o) {
  const auto x = x_bi.to(torch::kDouble), weight = weight_oi.to(torch::kDouble), bias = bias_o.to(torch::kDouble);
  const auto expected = x.matmul(weight.t()) + bias, sizes = x.abs().matmul(weight.abs().t()) + bias.abs();
  const double roundings = std::ceil(static_cast<double>(x_bi.size(1)) / 16) + 6;
  return ((y_bo - expected).abs() / (roundings * 0x1p-24 * sizes)).max().item<double>();
}

}  // namespace

TEST_CASE("products with a matrix of either type have the error of a float32 sum, at any width", "[decoder]") {
  const std::int64_t width = GENERATE(1, 7, 15, 16, 17, 31, 32, 100, 768), outputs = GENERATE(1, 3, 4, 5, 11);
  const std::int64_t batch = GENERATE(1, 2, 5);
  torch::manual_seed(width);
  const Layer layer(outputs, width);
  const auto x_bi = torch::randn({batch, width}) * std::pow(10.0, GENERATE(-3, 0, 3));
  CAPTURE(width, outputs, batch);
  const auto in = [&](WeightPrecision precision) { return products(layer.rows(precision), x_bi); };
  CHECK(fraction_of_bound(in(WeightPrecision::fp32), x_bi, layer.weight_oi, layer.bias_o) <= 1);
  CHECK(fraction_of_bound(in(WeightPrecision::bf16), x_bi, layer.bits_oi, layer.bias_o) <= 1);
}

TEST_CASE("if all weights are bfloat16 numbers, products with both types of matrix have the same bits", "[decoder]") {
  const std::int64_t width = GENERATE(1, 15, 16, 33, 129), batch = GENERATE(1, 3);
  torch::manual_seed(width);
  Layer layer(9, width);
  layer.weight_oi = layer.bits_oi.to(torch::kFloat);
  if (GENERATE(true, false)) layer.bias_o = torch::Tensor();
  const auto x_bi = torch::randn({batch, width});
  const auto y_bo = products(layer.rows(WeightPrecision::fp32), x_bi);
  CHECK(torch::equal(products(layer.rows(WeightPrecision::bf16), x_bi), y_bo));
  // A row has the same bits alone.
  CHECK(torch::equal(products(layer.rows(WeightPrecision::bf16), x_bi.narrow(0, batch - 1, 1)),
                     y_bo.narrow(0, batch - 1, 1)));
}

TEST_CASE("only the requested outputs are written, with the same bits as all together", "[decoder]") {
  const auto precision = GENERATE(WeightPrecision::fp32, WeightPrecision::bf16);
  const std::int64_t begin = GENERATE(0, 1, 4, 6), count = GENERATE(0, 1, 3, 5), batch = 2;
  const Layer layer(11, 20);
  const auto x_bi = torch::randn({batch, 20});
  auto y_bo = torch::full({batch, 11}, 7.0F);
  auto expected = y_bo.clone();
  expected.narrow(1, begin, count).copy_(products(layer.rows(precision), x_bi).narrow(1, begin, count));
  multiply_rows(layer.rows(precision), x_bi.const_data_ptr<float>(), y_bo.data_ptr<float>(), batch, begin,
                begin + count);
  CHECK(torch::equal(y_bo, expected));
}

TEST_CASE("a weight that is not finite reaches only its own output", "[decoder]") {
  const auto precision = GENERATE(WeightPrecision::fp32, WeightPrecision::bf16);
  const double value = GENERATE(std::nan(""), HUGE_VAL, -HUGE_VAL);
  const std::int64_t place = GENERATE(0, 16, 18);
  Layer layer(6, 19);
  layer.weight_oi.index_put_({2, place}, value);
  layer.bits_oi.index_put_({2, place}, value);
  const auto y_bo = products(layer.rows(precision), torch::ones({2, 19}));
  const auto found_b = y_bo.select(1, 2).to(torch::kDouble);
  CHECK((std::isnan(value) ? found_b.isnan() : found_b == value).all().item<bool>());
  CHECK(y_bo.isfinite().sum().item<std::int64_t>() == 2 * 5);
}

}  // namespace metaformer::test_multiply_rows
