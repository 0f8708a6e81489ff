// Picking by operators of a device gives what picking on the host gives.

#include <cmath>

#include "base/random.h"
#include "infer/sampling.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

// What TokenPicker picks from each row of float32 logits.
std::vector<std::int64_t> picked_on_host(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b,
                                         const SamplingOptions& options) {
  TokenPicker picker(options);
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < logits_bv.size(0); ++row) {
    const auto logits_v = logits_bv[row].to(torch::kDouble).contiguous();
    const std::span<const double> values(logits_v.data_ptr<double>(), static_cast<std::size_t>(logits_v.numel()));
    tokens.push_back(picker.pick(values, uniform_b[row].item<double>()));
  }
  return tokens;
}

std::vector<std::int64_t> picked_on_device(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b,
                                           const SamplingOptions& options) {
  const std::vector<std::int64_t> never(options.never.begin(), options.never.end());
  const auto never_n = never.empty() ? torch::Tensor() : torch::tensor(never);
  const auto tokens_b = pick_tokens_b(logits_bv, uniform_b, options, never_n);
  REQUIRE(tokens_b.sizes() == uniform_b.sizes());
  REQUIRE(tokens_b.scalar_type() == torch::kLong);
  return {tokens_b.data_ptr<std::int64_t>(), tokens_b.data_ptr<std::int64_t>() + tokens_b.numel()};
}

torch::Tensor uniform_numbers(std::int64_t count) {
  const Rng rng(3, RandomPurpose::sampling);
  const auto uniform_b = torch::empty({count}, torch::kDouble);
  for (std::int64_t i = 0; i < count; ++i) uniform_b[i] = rng.uniform(static_cast<std::uint64_t>(i));
  return uniform_b;
}

}  // namespace

TEST_CASE("operators pick what the host picks, with every option", "[sampling]") {
  const SamplingOptions options{.temperature = GENERATE(0.0, 1e-6, 0.8, 1.0, 1e6),
                                .top_k = GENERATE(0, 1, 3, 17, 1000),
                                .top_p = GENERATE(1e-9, 0.3, 0.9, 1.0),
                                .never = GENERATE(as<std::vector<std::int32_t>>{}, std::vector<std::int32_t>{},
                                                  std::vector<std::int32_t>{0, 3, 4, 16})};
  torch::manual_seed(1);
  const auto logits_bv = torch::randn({500, 17}) * 3;
  const auto uniform_b = uniform_numbers(500);
  CHECK(picked_on_device(logits_bv, uniform_b, options) == picked_on_host(logits_bv, uniform_b, options));
}

TEST_CASE("operators take the lower of two equal tokens first, as the host does", "[sampling]") {
  const SamplingOptions options{
      .temperature = GENERATE(0.0, 1.0), .top_k = GENERATE(0, 1, 2, 5), .top_p = GENERATE(0.5, 1.0)};
  torch::manual_seed(2);
  const auto logits_bv = torch::randint(3, {500, 11}).to(torch::kFloat);  // many are equal
  const auto uniform_b = uniform_numbers(500);
  CHECK(picked_on_device(logits_bv, uniform_b, options) == picked_on_host(logits_bv, uniform_b, options));
}

TEST_CASE("the ends of the uniform numbers pick the ends of the order, and no token that was left out", "[sampling]") {
  const auto logits_bv =
      torch::tensor({{std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)}}).repeat({2, 1});
  const auto ends_b = torch::tensor({0.0, 1 - 0x1p-53}, torch::kDouble);
  using Tokens = std::vector<std::int64_t>;
  const auto picked = [&](std::int64_t top_k, double top_p) {
    return picked_on_device(logits_bv, ends_b, {.temperature = 1, .top_k = top_k, .top_p = top_p});
  };
  CHECK(picked(0, 1) == Tokens{1, 0});
  CHECK(picked(2, 1) == Tokens{1, 3});
  CHECK(picked(0, 0.69) == Tokens{1, 3});
  CHECK(picked(0, 0.39) == Tokens{1, 1});
  CHECK(picked(1, 1) == Tokens{1, 1});
}

TEST_CASE("a number on the edge between two tokens picks the less likely one, as on the host", "[sampling]") {
  const auto logits_bv = torch::zeros({3, 4});
  const auto edges_b = torch::tensor({0.25, 0.5, 0.75}, torch::kDouble);
  const SamplingOptions options{.temperature = 1};
  CHECK(picked_on_device(logits_bv, edges_b, options) == std::vector<std::int64_t>{1, 2, 3});
  CHECK(picked_on_host(logits_bv, edges_b, options) == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("weights too small to count are never picked", "[sampling]") {
  const auto logits_bv = torch::tensor({{0.F, -1e4F, -1e4F}}).repeat({2, 1});
  const auto ends_b = torch::tensor({0.5, 1 - 0x1p-53}, torch::kDouble);
  CHECK(picked_on_device(logits_bv, ends_b, {.temperature = 1, .top_k = 0}) == std::vector<std::int64_t>{0, 0});
}

}  // namespace metaformer
