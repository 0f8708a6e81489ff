// Random numbers of passes, which are functions of (seed, step, number of the draw), and dropout by them.

#include <set>

#include "cpu/dropout.h"
#include "ops/dropout.h"
#include "ops/pass.h"
#include "support/torch_catch.h"

namespace metaformer::test_dropout {

namespace {

// The first training pass of a step.
Pass training_pass(std::int64_t step) {
  StepPasses passes(7, torch::kCPU);
  passes.set_step(step);
  return passes.pass(0);
}

// 1 where an entry of ones stays, 0 where it is dropped.
torch::Tensor kept(std::int64_t count, double share, std::int64_t step) {
  auto pass = training_pass(step);
  return (dropout(torch::ones({count}), share, pass) > 0).to(torch::kDouble);
}

double correlation(const torch::Tensor& a, const torch::Tensor& b) {
  const auto x = a - a.mean(), y = b - b.mean();
  return ((x * y).mean() / (x.square().mean() * y.square().mean()).sqrt()).item<double>();
}

}  // namespace

TEST_CASE("draws depend only on seed, step and number", "[pass]") {
  std::set<std::uint64_t> seen;
  const auto draws = [&](std::uint64_t seed, std::int64_t step, std::int64_t first_row) {
    StepPasses passes(seed, torch::kCPU);
    passes.set_step(step);
    std::vector<std::uint64_t> seeds;
    auto pass = passes.pass(first_row);
    for (int i = 0; i < 5; ++i) {
      const auto draw = pass.random.next();
      CHECK(draw.first_row == first_row);
      seeds.push_back(draw.seed());
    }
    return seeds;
  };
  for (const std::uint64_t seed : {1, 2})
    for (const std::int64_t step : {0, 1, 1000}) {
      const auto seeds = draws(seed, step, 3);
      seen.insert(seeds.begin(), seeds.end());
      CHECK(seeds == draws(seed, step, 0));
    }
  CHECK(seen.size() == 2 * 3 * 5);
}

TEST_CASE("a stream of random numbers can be copied and set back", "[pass]") {
  StepPasses passes(3, torch::kCPU);
  auto pass = passes.pass(0);
  pass.random.next();
  auto copy = pass;
  const auto place = pass.random.place();
  const auto second = pass.random.next().seed(), third = pass.random.next().seed();
  CHECK(copy.random.next().seed() == second);
  pass.random.go_back(place);
  CHECK(pass.random.next().seed() == second);
  CHECK(pass.random.next().seed() == third);
}

TEST_CASE("the key is read at the time of a draw", "[pass]") {
  StepPasses passes(3, torch::kCPU), later(3, torch::kCPU);
  passes.set_step(1);
  later.set_step(2);
  auto recorded = passes.pass(0), expected = later.pass(0);
  passes.set_step(2);
  CHECK(recorded.random.next().seed() == expected.random.next().seed());
}

TEST_CASE("a pass of an evaluation has no random numbers", "[pass]") {
  Pass pass;
  CHECK_THROWS(pass.random.next());
}

TEST_CASE("dropout drops the configured fraction and divides the kept entries by the remaining one", "[dropout]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kDouble);
  const double share = GENERATE(0.01, 0.2, 0.5, 0.9);
  const auto x = torch::randn({1'000'003}).to(type);
  auto pass = training_pass(0);
  const auto y = dropout(x, share, pass);
  REQUIRE(y.scalar_type() == type);
  const auto dropped = y == 0;
  // Five standard deviations of a fraction of a million entries.
  CHECK(dropped.to(torch::kDouble).mean().item<double>() ==
        Approx(share).margin(5 * std::sqrt(share * (1 - share) / 1e6)));
  const auto expected = (x.to(torch::kDouble) / (1 - share)).masked_fill(dropped, 0);
  const double roundoff = type == torch::kBFloat16 ? 0x1p-8 : 0x1p-23;
  CHECK(((y.to(torch::kDouble) - expected).abs() <= roundoff * expected.abs()).all().item<bool>());
}

TEST_CASE("masks of dropout are uncorrelated in place and step", "[dropout]") {
  constexpr std::int64_t count = 1 << 20;
  const double limit = 5 / std::sqrt(static_cast<double>(count));
  const auto mask = kept(count, 0.3, 1);
  for (const std::int64_t lag : {1, 2, 15, 16, 64, 1024, 65536})
    CHECK(std::abs(correlation(mask.narrow(0, 0, count - lag), mask.narrow(0, lag, count - lag))) < 1.05 * limit);
  for (const std::int64_t step : {2, 3, 65537}) CHECK(std::abs(correlation(mask, kept(count, 0.3, step))) < limit);
}

TEST_CASE("dropout is the same in a repeated pass", "[dropout]") {
  CHECK(torch::equal(kept(300'007, 0.4, 7), kept(300'007, 0.4, 7)));
  auto pass = training_pass(7);
  const auto x = torch::ones({300'007});
  CHECK_FALSE(torch::equal(dropout(x, 0.4, pass), dropout(x, 0.4, pass)));
}

TEST_CASE("places beyond 32 bits have different masks", "[dropout]") {
  constexpr std::int64_t count = 4096;
  const DropoutMask mask(0.5, 11);
  const std::vector<float> x(count, 1);
  std::vector<float> low(count), high(count);
  mask.apply(x.data(), low.data(), count, 0);
  mask.apply(x.data(), high.data(), count, std::int64_t{1} << 32);
  std::int64_t equal = 0;
  for (std::int64_t i = 0; i < count; ++i) equal += low[i] == high[i];
  CHECK(std::abs(equal - count / 2) < 5 * 32);  // five standard deviations
}

TEST_CASE("masks of weights do not repeat beyond 256 heads or 65,536 tokens", "[dropout]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  constexpr double share = 0.4;
  StepPasses passes(7, torch::kCPU);
  const auto kept_weights = [&](torch::IntArrayRef sizes) {
    auto pass = passes.pass(3);
    return dropout_of_weights(torch::ones(sizes, type), share, pass) != 0;
  };
  // `kept`: the whole mask, whose fraction is compared; `a`, `b`: parts that a repetition would make equal.
  const auto check = [&](const torch::Tensor& kept, const torch::Tensor& a, const torch::Tensor& b) {
    const double count = static_cast<double>(kept.numel()), pairs = static_cast<double>(a.numel());
    CHECK(1 - kept.to(torch::kDouble).mean().item<double>() ==
          Approx(share).margin(5 * std::sqrt(share * (1 - share) / count)));
    // The probability that two independent entries are equal.
    const double equal = share * share + (1 - share) * (1 - share);
    CHECK((a == b).to(torch::kDouble).mean().item<double>() ==
          Approx(equal).margin(5 * std::sqrt(equal * (1 - equal) / pairs)));
  };
  SECTION("heads") {
    const auto kept = kept_weights({2, 300, 40, 50});
    check(kept, kept.narrow(1, 0, 44), kept.narrow(1, 256, 44));
    check(kept, kept[1].narrow(0, 0, 44), kept[0].narrow(0, 256, 44));  // heads beyond 256 do not repeat the next row
    CHECK(torch::equal(kept.narrow(1, 0, 256), kept_weights({2, 256, 40, 50})));
  }
  SECTION("keys") {
    const auto kept = kept_weights({1, 1, 2, 70'000});
    check(kept, kept.narrow(3, 0, 4464), kept.narrow(3, 65'536, 4464));
    check(kept, kept.select(2, 1).narrow(2, 0, 4464), kept.select(2, 0).narrow(2, 65'536, 4464));
    CHECK(torch::equal(kept.narrow(3, 0, 65'536), kept_weights({1, 1, 2, 65'536})));
  }
  SECTION("queries") {
    const auto kept = kept_weights({1, 2, 70'000, 1});
    check(kept, kept.narrow(2, 0, 4464), kept.narrow(2, 65'536, 4464));
    check(kept, kept.select(1, 1).narrow(1, 0, 4464), kept.select(1, 0).narrow(1, 65'536, 4464));
    CHECK(torch::equal(kept.narrow(2, 0, 65'536), kept_weights({1, 2, 65'536, 1})));
  }
}

TEST_CASE("the gradient of dropout has the mask of the values", "[dropout]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const auto whole = torch::randn({3, 70, 40}).to(type).requires_grad_();
  auto pass = training_pass(1);
  const auto y = dropout(whole.transpose(0, 1), 0.25, pass);  // not contiguous
  const auto direction = torch::randn({40, 70, 3}).to(type).permute({1, 2, 0});
  const auto gradient = torch::autograd::grad({y}, {whole}, {direction})[0].transpose(0, 1);
  const auto expected = (direction.to(torch::kFloat) / 0.75F).to(type).masked_fill(y == 0, 0);
  CHECK(torch::allclose(gradient, expected, type == torch::kFloat ? 1e-6 : 1e-2, 0));
}

TEST_CASE("the mask of a row depends on its place in the step, not on its batch or length", "[dropout]") {
  StepPasses passes(7, torch::kCPU);
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kDouble);
  const auto row_kept = [&](const auto& drop, const torch::Tensor& ones, std::int64_t first_row) {
    auto pass = passes.pass(first_row);
    return drop(ones.to(type), 0.4, pass) != 0;
  };
  SECTION("of tokens, which padding follows") {
    const auto drop = [](auto&&... arguments) { return dropout(arguments...); };
    const auto whole = row_kept(drop, torch::ones({6, 5, 7}), 3);
    CHECK(torch::equal(row_kept(drop, torch::ones({2, 5, 7}), 7), whole.narrow(0, 4, 2)));
    CHECK(torch::equal(row_kept(drop, torch::ones({2, 3, 7}), 7), whole.narrow(0, 4, 2).narrow(1, 0, 3)));
    CHECK_FALSE(torch::equal(row_kept(drop, torch::ones({2, 5, 7}), 8), whole.narrow(0, 4, 2)));
    CHECK_FALSE(torch::equal(whole[0], whole[1]));
  }
  SECTION("of weights") {
    const auto drop = [](auto&&... arguments) { return dropout_of_weights(arguments...); };
    const auto whole = row_kept(drop, torch::ones({6, 2, 5, 9}), 3);
    const auto part = whole.narrow(0, 4, 2).narrow(2, 0, 4).narrow(3, 0, 6);
    CHECK(torch::equal(row_kept(drop, torch::ones({2, 2, 4, 6}), 7), part));
    CHECK_FALSE(torch::equal(whole.select(1, 0), whole.select(1, 1)));
    CHECK_FALSE(torch::equal(whole.select(2, 0), whole.select(2, 1)));
  }
  SECTION("of segments") {
    const auto rows_l2 = torch::tensor({{0, 0}, {0, 1}, {1, 0}, {3, 0}, {3, 1}}, torch::kLong);
    const auto of = [](const torch::Tensor& rows) {
      return
          [=](const torch::Tensor& x, double share, Pass& pass) { return dropout_of_segments(x, rows, share, pass); };
    };
    const auto whole = row_kept(of(rows_l2), torch::ones({5, 40}), 3);
    const auto last_l2 = torch::tensor({{1, 0}, {1, 1}}, torch::kLong);
    CHECK(torch::equal(row_kept(of(last_l2), torch::ones({2, 40}), 5), whole.narrow(0, 3, 2)));
    CHECK_FALSE(torch::equal(whole[3], whole[4]));
    const auto rows_alone = row_kept(of(torch::Tensor()), torch::ones({2, 40}), 3);
    CHECK(torch::equal(rows_alone[0], whole[0]));
    CHECK(torch::equal(rows_alone[1], whole[2]));
  }
  SECTION("what rows share has one mask") {
    const auto drop = [](auto&&... arguments) { return dropout_of_shared(arguments...); };
    CHECK(torch::equal(row_kept(drop, torch::ones({6, 40}), 0), row_kept(drop, torch::ones({6, 40}), 4)));
  }
}

TEST_CASE("dropout does nothing with a probability of 0, without entries, and in evaluation", "[dropout]") {
  const auto x = torch::randn({5});
  auto training = training_pass(1);
  Pass evaluation;
  CHECK(dropout(x, 0, training).is_same(x));
  CHECK(training.random.place() == 0);
  CHECK(dropout(x, 0.5, evaluation).is_same(x));
  CHECK(dropout(torch::empty({0, 4}), 0.5, training).sizes() == torch::IntArrayRef{0, 4});
}

}  // namespace metaformer::test_dropout
