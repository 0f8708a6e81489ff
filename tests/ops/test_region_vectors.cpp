// Region vectors against a convolution over one-hot vectors in float64.

#include "ops/layer.h"
#include "ops/region_vectors.h"
#include "support/torch_catch.h"

namespace metaformer::test_region_vectors {

namespace {

constexpr std::int64_t vocabulary = 9;

// Texts of different lengths with padding, and tables for a number of places.
struct Example {
  torch::Tensor ids_bc, lengths_b, weight_rd, bias_d;
  std::int64_t places = 0;
};

Example example(std::int64_t places, std::int64_t width) {
  torch::manual_seed(3);
  return {.ids_bc = torch::randint(vocabulary, {4, 11}, torch::kLong),
          .lengths_b = torch::tensor({11, 1, 7, 2}),
          .weight_rd = torch::randn({places * vocabulary, width}),
          .bias_d = torch::randn({width}) / 4,
          .places = places};
}

torch::Tensor rows_bcp(const Example& e) {
  auto rows = torch::full({4, 11, e.places}, -1, torch::kInt);
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t c = 0; c < e.lengths_b[b].item<std::int64_t>(); ++c)
      for (std::int64_t p = 0; p <= std::min(c, e.places - 1); ++p)
        rows[b][c][p] = (p * vocabulary + e.ids_bc[b][c - p]).to(torch::kInt);
  return rows;
}

// [b, c, d] by the definition: a convolution over one-hot vectors, with zeros before the text.
torch::Tensor convolved(const Example& e, const torch::Tensor& weight_rd, const torch::Tensor& bias_d) {
  const auto one_hot_bvc = torch::one_hot(e.ids_bc, vocabulary).to(torch::kDouble).transpose(1, 2);
  const auto kernel_dvp = weight_rd.view({e.places, vocabulary, -1}).flip(0).permute({2, 1, 0});
  const auto padded = torch::constant_pad_nd(one_hot_bvc, {e.places - 1, 0});
  return torch::conv1d(padded, kernel_dvp, bias_d).relu().transpose(1, 2);
}

torch::Tensor is_token_bc1(const Example& e) {
  return (torch::arange(11).unsqueeze(0) < e.lengths_b.unsqueeze(1)).unsqueeze(2);
}

struct Results {
  torch::Tensor y, dweight_rd, dbias_d;
};

template <class Compute>
Results results(const Example& e, torch::ScalarType type, const torch::Tensor& dy, const Compute& compute) {
  const auto leaf = [&](const torch::Tensor& x) { return x.detach().to(type, false, /*copy=*/true).requires_grad_(); };
  const auto weight_rd = leaf(e.weight_rd), bias_d = leaf(e.bias_d);
  const auto y = compute(weight_rd, bias_d);
  y.backward(dy.to(type));
  const auto dweight = weight_rd.grad().is_sparse() ? weight_rd.grad().to_dense() : weight_rd.grad();
  return {y.detach(), dweight, bias_d.grad()};
}

void check_equal(const Results& ours, const Results& expected, double tolerance) {
  CHECK(relative_error(ours.y, expected.y) < tolerance);
  CHECK(relative_error(ours.dweight_rd, expected.dweight_rd) < tolerance);
  CHECK(relative_error(ours.dbias_d, expected.dbias_d) < tolerance);
}

}  // namespace

TEST_CASE("region vectors and their gradients equal those of a convolution over one-hot vectors", "[regions]") {
  const auto places = GENERATE(1, 2, 3, 5), width = GENERATE(1, 15, 16, 64, 83);
  CAPTURE(places, width);
  const auto e = example(places, width);
  const auto rows = rows_bcp(e);
  // Vectors of padding are not compared and have no gradient.
  const auto dy = torch::randn({4, 11, width}).masked_fill(is_token_bc1(e).logical_not(), 0);
  const auto only_tokens = [&](const torch::Tensor& y) { return y.masked_fill(is_token_bc1(e).logical_not(), 0); };
  const auto expected = results(e, torch::kDouble, dy, [&](const auto& weight, const auto& bias) {
    return only_tokens(convolved(e, weight, bias));
  });
  const auto compute = [&](const auto& weight, const auto& bias) {
    return only_tokens(region_vectors(rows, weight, bias));
  };
  check_equal(results(e, torch::kFloat, dy, compute), expected, 1e-6);
  check_equal(results(e, torch::kDouble, dy, compute), expected, 1e-14);
}

TEST_CASE("the greatest region vectors and their gradients equal a maximum over the tokens of each text", "[regions]") {
  const auto places = GENERATE(1, 3), width = GENERATE(1, 16, 64, 83);
  CAPTURE(places, width);
  const auto e = example(places, width);
  const auto rows = rows_bcp(e);
  const auto dy = torch::randn({4, width});
  const auto expected = results(e, torch::kDouble, dy, [&](const auto& weight, const auto& bias) {
    return std::get<0>(convolved(e, weight, bias).masked_fill(is_token_bc1(e).logical_not(), 0).max(1));
  });
  const auto compute = [&](const auto& weight, const auto& bias) {
    return greatest_region_vectors(rows, weight, bias);
  };
  check_equal(results(e, torch::kFloat, dy, compute), expected, 1e-6);
  check_equal(results(e, torch::kDouble, dy, compute), expected, 1e-14);
  const auto vectors_bcd = region_vectors(rows, e.weight_rd, e.bias_d).masked_fill(is_token_bc1(e).logical_not(), 0);
  CHECK(torch::equal(greatest_region_vectors(rows, e.weight_rd, e.bias_d), vectors_bcd.amax(1)));
}

TEST_CASE("a text without tokens gives zeros and no gradient", "[regions]") {
  const auto weight_rd = torch::randn({6, 20}).requires_grad_(), bias_d = torch::ones(20).requires_grad_();
  const auto y = greatest_region_vectors(torch::full({2, 3, 2}, -1, torch::kInt), weight_rd, bias_d);
  CHECK(torch::equal(y, torch::zeros({2, 20})));
  y.sum().backward();
  CHECK(weight_rd.grad()._nnz() == 0);
  CHECK(torch::equal(bias_d.grad(), torch::zeros(20)));
}

TEST_CASE("a NaN among the weights that are read reaches the results", "[regions]") {
  auto e = example(2, 33);
  const auto rows = rows_bcp(e);
  e.weight_rd[e.ids_bc[0][4].item<std::int64_t>()][17] = std::numeric_limits<float>::quiet_NaN();
  CHECK(greatest_region_vectors(rows, e.weight_rd, e.bias_d)[0][17].isnan().item<bool>());
  CHECK_FALSE(greatest_region_vectors(rows, e.weight_rd, e.bias_d)[0][16].isnan().item<bool>());
  CHECK(region_vectors(rows, e.weight_rd, e.bias_d)[0][4][17].isnan().item<bool>());
}

TEST_CASE("the gradient of a table has only the rows that were read, and lists them", "[regions]") {
  const auto e = example(2, 64);
  const auto rows = rows_bcp(e);
  auto weight_rd = e.weight_rd.clone().requires_grad_();
  GradientRows listed(weight_rd.size(0));
  list_gradient_rows(weight_rd, listed);
  const auto list = [&] {
    auto numbers = listed.listed();
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  };
  const auto nonzero_rows = [&](const torch::Tensor& gradient) {
    const auto rows_n = gradient.to_dense().abs().sum(1).nonzero().flatten().contiguous();
    const auto* first = rows_n.data_ptr<std::int64_t>();
    return std::vector<std::int64_t>(first, first + rows_n.numel());
  };
  // The greatest vectors of a text read fewer rows than all its vectors.
  const auto text = rows.narrow(0, 0, 1);
  greatest_region_vectors(text, weight_rd, e.bias_d).sum().backward();
  CHECK(list() == nonzero_rows(weight_rd.grad()));
  const auto of_greatest = list().size();
  listed.clear();
  weight_rd.mutable_grad() = torch::Tensor();
  region_vectors(text, weight_rd, e.bias_d).sum().backward();
  CHECK(list().size() >= of_greatest);
  CHECK_FALSE(listed.has_all());
  (weight_rd * 2).sum().backward();
  CHECK(listed.has_all());
  listed.clear();
  CHECK(listed.listed().empty());
  CHECK_FALSE(listed.has_all());
}

TEST_CASE("repeated rows of a gradient are summed before they are listed", "[regions]") {
  auto weight_rd = torch::randn({50, 4}).requires_grad_();
  GradientRows listed(50);
  list_gradient_rows(weight_rd, listed);
  const auto ids = torch::tensor({7, 7, 3, 7});
  torch::embedding(weight_rd, ids, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true).sum().backward();
  CHECK(listed.listed() == std::vector<std::int64_t>{3, 7});
  CHECK(weight_rd.grad()._nnz() == 2);
  CHECK(torch::equal(weight_rd.grad().to_dense()[7], torch::full({4}, 3.0)));
}

}  // namespace metaformer::test_region_vectors
