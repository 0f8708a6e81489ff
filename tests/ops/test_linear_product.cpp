// Linear layers as a single node, against the library's.

#include <torch/nn/functional/linear.h>

#include <functional>
#include <memory>

#include "ops/autocast.h"
#include "ops/linear.h"
#include "support/torch_catch.h"

namespace metaformer::test_linear_product {

namespace {

using torch::Tensor;

struct Layer {
  Tensor x, weight_oi, bias_o;
};

Layer random_layer(const std::vector<std::int64_t>& sizes, std::int64_t outputs, bool has_bias) {
  torch::manual_seed(3);
  const auto leaf = [](Tensor values) { return values.requires_grad_(true); };
  return {leaf(torch::randn(sizes)), leaf(torch::randn({outputs, sizes.back()})),
          has_bias ? leaf(torch::randn(outputs)) : Tensor()};
}

std::vector<Tensor> inputs_of(const Layer& layer) {
  std::vector<Tensor> inputs = {layer.x, layer.weight_oi};
  if (layer.bias_o.defined()) inputs.push_back(layer.bias_o);
  return inputs;
}

// The outputs, and the gradients of a weighted sum of them.
template <class Apply>
std::vector<Tensor> outputs_and_gradients(const Layer& layer, Precision precision, Apply apply) {
  Tensor y;
  {
    const AutocastScope autocast(precision, torch::kCPU);
    y = apply(layer.x, layer.weight_oi, layer.bias_o);
  }
  torch::manual_seed(4);
  const auto weights = torch::randn(y.sizes()).to(y.scalar_type());
  auto found = torch::autograd::grad({y}, inputs_of(layer), {weights});
  found.insert(found.begin(), y.detach());
  return found;
}

Tensor by_library(const Tensor& x, const Tensor& weight_oi, const Tensor& bias_o) {
  return torch::nn::functional::linear(x, weight_oi, bias_o);
}

// A layer whose weight and bias lie in a buffer with a copy in bfloat16.
struct CopiedLayer {
  Layer layer;
  Tensor values;
  std::unique_ptr<HalfWeights> half;

  CopiedLayer(const std::vector<std::int64_t>& sizes, bool has_bias) : layer(random_layer(sizes, 10, has_bias)) {
    const torch::NoGradGuard no_grad;
    values = torch::zeros({1024});
    std::vector<HalfWeights::Part> parts;
    std::int64_t offset = 0;
    for (auto* parameter : {&layer.weight_oi, &layer.bias_o}) {
      if (!parameter->defined()) continue;
      const auto place = values.narrow(0, offset, parameter->numel()).view(parameter->sizes());
      place.copy_(*parameter);
      parameter->set_data(place);
      const std::int64_t count = (parameter->numel() + 15) / 16 * 16;
      parts.push_back({*parameter, offset, count});
      offset += count;
    }
    half = std::make_unique<HalfWeights>(values, parts, torch::kBFloat16);
  }
};

Tensor copy_of(const Tensor& weight, Precision precision = Precision::bf16) {
  const AutocastScope autocast(precision, torch::kCPU);
  return HalfWeights::copy_of(weight);
}

void check_copy(const Tensor& weight) {
  const auto copy = copy_of(weight);
  REQUIRE(copy.defined());
  CHECK(copy.strides() == weight.strides());
  CHECK(torch::equal(copy, weight.detach().to(torch::kBFloat16)));
}

}  // namespace

TEST_CASE("linear products give the same bytes as the library, forward and backward", "[linear]") {
  const auto sizes = GENERATE(values<std::vector<std::int64_t>>({{5, 12}, {3, 7, 12}, {64, 33, 48}, {1, 1, 8}}));
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  const bool has_bias = GENERATE(true, false);
  const auto layer = random_layer(sizes, 10, has_bias);
  const auto ours = outputs_and_gradients(layer, precision, linear_product);
  const auto theirs = outputs_and_gradients(layer, precision, by_library);
  REQUIRE(ours.size() == theirs.size());
  // The library rounds to bfloat16 twice when it adds a bias to three dimensions.
  const std::size_t first = precision == Precision::bf16 && has_bias ? 1 : 0;
  for (std::size_t i = first; i < ours.size(); ++i) {
    CAPTURE(i, sizes, precision, has_bias);
    CHECK(ours[i].scalar_type() == theirs[i].scalar_type());
    CHECK(torch::equal(ours[i], theirs[i]));
  }
}

TEST_CASE("a linear product in bfloat16 with a bias is rounded once", "[linear]") {
  const auto layer = random_layer({64, 33, 48}, 10, true);
  const auto y = outputs_and_gradients(layer, Precision::bf16, linear_product)[0];
  const auto rounded = [](const Tensor& value) { return value.detach().to(torch::kBFloat16).to(torch::kDouble); };
  const auto exact = torch::nn::functional::linear(rounded(layer.x), rounded(layer.weight_oi), rounded(layer.bias_o));
  // Half a unit of bfloat16's last place, and the rounding of the sum in float32.
  const auto error = (y.to(torch::kDouble) - exact).abs() - exact.abs() / 256;
  CHECK(error.max().item<double>() < 1e-5);
}

TEST_CASE("linear products of inputs that are not contiguous or already in bfloat16 equal the library's", "[linear]") {
  auto layer = random_layer({3, 12, 7}, 10, true);
  layer.x = layer.x.detach().transpose(1, 2).requires_grad_(true);
  layer.weight_oi = torch::randn({10, 12}).requires_grad_(true);
  const auto ours = outputs_and_gradients(layer, Precision::fp32, linear_product);
  const auto theirs = outputs_and_gradients(layer, Precision::fp32, by_library);
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(torch::allclose(ours[i], theirs[i], 1e-6, 1e-6));
  layer.x = layer.x.detach().to(torch::kBFloat16).contiguous().requires_grad_(true);
  const auto narrow = outputs_and_gradients(layer, Precision::bf16, linear_product);
  CHECK(narrow[1].scalar_type() == torch::kBFloat16);
  CHECK(torch::equal(narrow[1], outputs_and_gradients(layer, Precision::bf16, by_library)[1]));
}

TEST_CASE("only inputs that need a gradient get one", "[linear]") {
  auto layer = random_layer({4, 6}, 3, false);
  layer.x = layer.x.detach();
  const auto y = linear_product(layer.x, layer.weight_oi, layer.bias_o);
  y.sum().backward();
  CHECK(torch::allclose(layer.weight_oi.grad(), layer.x.sum(0).expand({3, 6})));
  const torch::NoGradGuard no_grad;
  CHECK_FALSE(linear_product(layer.x, layer.weight_oi, layer.bias_o).requires_grad());
}

TEST_CASE("linear products of copied weights give the same bytes as those of cast weights", "[linear]") {
  const auto sizes = GENERATE(values<std::vector<std::int64_t>>({{5, 12}, {3, 7, 12}, {64, 33, 48}, {1, 1, 8}}));
  const bool has_bias = GENERATE(true, false);
  CAPTURE(sizes, has_bias);
  const CopiedLayer copied(sizes, has_bias);
  const auto by_cast = outputs_and_gradients(copied.layer, Precision::bf16, linear_product);
  const auto without_gradients = [&] {
    const torch::NoGradGuard no_grad;
    const AutocastScope autocast(Precision::bf16, torch::kCPU);
    return linear_product(copied.layer.x, copied.layer.weight_oi, copied.layer.bias_o);
  };
  const auto evaluated_by_cast = without_gradients();
  CHECK_FALSE(copy_of(copied.layer.weight_oi).defined());
  copied.half->refresh();
  check_copy(copied.layer.weight_oi);
  const auto by_copy = outputs_and_gradients(copied.layer, Precision::bf16, linear_product);
  for (std::size_t i = 0; i < by_cast.size(); ++i) {
    CHECK(by_copy[i].scalar_type() == by_cast[i].scalar_type());
    CHECK(torch::equal(by_copy[i], by_cast[i]));
  }
  CHECK(torch::equal(without_gradients(), evaluated_by_cast));
  // The product reads the copy, and not the weight.
  copied.half->copy().zero_();
  CHECK(torch::equal(outputs_and_gradients(copied.layer, Precision::bf16, linear_product)[1],
                     torch::zeros_like(copied.layer.x)));
  CHECK_FALSE(torch::equal(without_gradients(), evaluated_by_cast));
}

TEST_CASE("the copy of a weight is found for its views, and only under autocast in its type", "[linear]") {
  CopiedLayer copied({5, 12}, true);
  copied.half->refresh();
  const auto& weight_oi = copied.layer.weight_oi;
  for (const auto& view : {weight_oi, weight_oi.narrow(0, 2, 3), weight_oi.narrow(1, 4, 8), weight_oi.t(),
                           weight_oi.view_as(weight_oi), weight_oi.detach(), weight_oi[9], copied.layer.bias_o})
    check_copy(view);
  CHECK_FALSE(copy_of(weight_oi, Precision::fp16).defined());
  CHECK_FALSE(copy_of(weight_oi, Precision::fp32).defined());
  CHECK_FALSE(copy_of(weight_oi.detach().clone()).defined());
  CHECK_FALSE(copy_of(copied.values.narrow(0, 1000, 16)).defined());  // no parameter lies there
  CHECK_FALSE(copy_of(Tensor()).defined());
  copied.half.reset();
  CHECK_FALSE(copy_of(weight_oi).defined());
}

TEST_CASE("a copy is read until its weight is written, by the weight, its views or the buffer", "[linear]") {
  CopiedLayer copied({5, 12}, true);
  auto& [layer, values, half] = copied;
  const torch::NoGradGuard no_grad;
  const auto buffer = values.narrow(0, 0, 16);
  const std::vector<std::function<void()>> writes = {
      [&] { layer.weight_oi.add_(1); },
      [&] { layer.weight_oi.narrow(0, 3, 1).zero_(); },
      [&] { layer.weight_oi.detach().t().mul_(2); },
      [&] { at::_foreach_add_({layer.weight_oi.detach()}, 1); },
      [&] {
        at::addmm_out(layer.weight_oi, layer.weight_oi, torch::ones({10, 2}), torch::ones({2, 12}));
      },
      [&] { values.fill_(3); },
      [&] { buffer.copy_(torch::randn({16})); },
      [&] {
        *buffer.data_ptr<float>() = 7;  // as a kernel
        count_write(buffer);
      }};
  for (const auto& write : writes) {
    half->refresh();
    CHECK(half->is_current());
    check_copy(layer.weight_oi);
    write();
    CHECK_FALSE(half->is_current());
    CHECK_FALSE(copy_of(layer.weight_oi).defined());
  }
  half->refresh();
  layer.weight_oi.zero_();
  check_copy(layer.bias_o);  // another weight was written
}

}  // namespace metaformer::test_linear_product
