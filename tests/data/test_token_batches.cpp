// Batches of about equally many tokens.

#include <algorithm>

#include "data/epoch_order.h"
#include "support/catch.h"

namespace metaformer {

namespace {

constexpr std::int64_t items = 500, most = 60;

std::vector<PairLength> ragged_lengths() {
  std::vector<PairLength> lengths;
  for (std::int64_t i = 0; i < items; ++i) {
    const auto longer = 2 + i * 7 % 23;
    lengths.push_back({.longer = longer, .shorter = 1 + i * 5 % longer});
  }
  return lengths;
}

}  // namespace

TEST_CASE("an epoch of batches has every item once, and no batch is above its tokens", "[token_batches]") {
  const std::int64_t bucketing = GENERATE(1, 5, 1000);
  const auto lengths = ragged_lengths();
  const TokenBatches batches(lengths, most, bucketing, 7);
  std::int64_t number = 0;
  for (const int epoch : {0, 1, 2}) {
    std::vector<std::size_t> seen;
    while (std::ssize(seen) < items) {
      const auto& batch = batches.batch(number++);
      std::int64_t longest = 0;
      for (const auto item : batch) longest = std::max(longest, lengths[item].longer);
      REQUIRE(!batch.empty());
      REQUIRE(std::ssize(batch) * longest <= most);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    INFO(epoch);
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size(); ++i) REQUIRE(seen[i] == i);
  }
}

TEST_CASE("a batch depends on seed and number alone", "[token_batches]") {
  const TokenBatches asked_in_order(ragged_lengths(), most, 5, 3), asked_at_random(ragged_lengths(), most, 5, 3),
      of_another_seed(ragged_lengths(), most, 5, 4);
  std::vector<std::vector<std::size_t>> series;
  for (std::int64_t number = 0; number < 400; ++number) series.push_back(asked_in_order.batch(number));
  for (std::int64_t i = 0; i < 400; ++i) {
    const auto number = i * 171 % 400;
    REQUIRE(asked_at_random.batch(number) == series[static_cast<std::size_t>(number)]);
    REQUIRE(of_another_seed.batch(number) != series[static_cast<std::size_t>(number)]);
  }
}

TEST_CASE("sorted batches are fewer, and they do not come by length", "[token_batches]") {
  const auto lengths = ragged_lengths();
  const TokenBatches mixed(lengths, most, 1, 1), sorted(lengths, most, 1000, 1);
  std::int64_t tokens = 0;
  for (const auto& length : lengths) tokens += length.longer;
  CHECK(sorted.batches_per_epoch() * most < tokens * 5 / 4);
  CHECK(mixed.batches_per_epoch() * 5 > sorted.batches_per_epoch() * 6);
  int rises = 0;
  for (std::int64_t number = 1; number < sorted.batches_per_epoch(); ++number) {
    const auto before = lengths[sorted.batch(number - 1).front()].longer;
    rises += before < lengths[sorted.batch(number).front()].longer;
  }
  CHECK(rises > sorted.batches_per_epoch() / 4);
  CHECK(rises < 3 * sorted.batches_per_epoch() / 4);
}

TEST_CASE("what is longer than a batch is one of its own", "[token_batches]") {
  const TokenBatches batches({{5, 5}, {100, 2}, {5, 1}}, 10, 1000, 0);
  std::vector<std::vector<std::size_t>> all;
  for (std::int64_t number = 0; number < batches.batches_per_epoch(); ++number) all.push_back(batches.batch(number));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  REQUIRE(all.size() == 2);
  CHECK(all[0] == std::vector<std::size_t>{1});
  CHECK(all[1].size() == 2);
}

}  // namespace metaformer
