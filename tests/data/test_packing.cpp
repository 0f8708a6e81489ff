// Packing of histograms: published numbers, and what every plan must keep; batches of about equally many tokens.

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "base/random.h"
#include "data/epoch_order.h"
#include "data/packing.h"
#include "data/wikipedia_lengths.h"
#include "support/catch.h"

namespace metaformer {

namespace {

LengthHistogram wikipedia() {
  LengthHistogram histogram = {0};
  histogram.insert(histogram.end(), wikipedia_lengths.begin(), wikipedia_lengths.end());
  return histogram;
}

// The same in bins of `width` lengths.
LengthHistogram wikipedia_in_bins(std::size_t width) {
  LengthHistogram histogram(wikipedia_lengths.size() / width + 1);
  for (std::size_t i = 0; i < wikipedia_lengths.size(); ++i) histogram[i / width + 1] += wikipedia_lengths[i];
  return histogram;
}

LengthHistogram random_histogram(std::int64_t context, std::uint64_t seed) {
  const Rng rng(seed, RandomPurpose::noise);
  LengthHistogram histogram(static_cast<std::size_t>(context) + 1);
  for (std::size_t length = 1; length < histogram.size(); ++length)
    histogram[length] = static_cast<std::int64_t>(rng.below(length, rng.below(1000 + length, 3) == 0 ? 1 : 60));
  return histogram;
}

PackingConfig packing(const std::string& kind, std::int64_t depth) {
  if (kind == "spfhp") return ShortestFirstPackingConfig{{.depth = depth}};
  return LeastSquaresPackingConfig{{.depth = depth}};
}

std::vector<std::int64_t> places_by_length(const PackPlan& plan, std::size_t size) {
  std::vector<std::int64_t> places(size);
  for (const auto& kind : plan.kinds)
    for (const auto length : kind.lengths) places.at(static_cast<std::size_t>(length)) += kind.count;
  return places;
}

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

TEST_CASE("shortest-pack-first gives the published numbers for Wikipedia", "[packing]") {
  const std::map<std::int64_t, std::int64_t> packs_by_depth = {{1, 16'279'552}, {2, 10'101'683}, {3, 9'094'695},
                                                               {4, 8'658'996},  {8, 8'224'673},  {12, 8'166'708},
                                                               {0, 8'166'708}};
  for (const auto& [depth, packs] : packs_by_depth) CHECK(pack_shortest_first(wikipedia(), depth).packs() == packs);
  const auto stats = measure_packs(wikipedia(), pack_shortest_first(wikipedia(), 3));
  CHECK(stats.sequences == 16'279'552);
  CHECK(stats.efficiency == Approx(0.8944).margin(5e-5));
  CHECK(stats.factor == Approx(1.790).margin(5e-4));
  CHECK(stats.speed_up_limit == Approx(2.0013).margin(5e-5));
}

TEST_CASE("least squares fill Wikipedia's packs of three better than 99.7%", "[packing]") {
  const auto start = std::chrono::steady_clock::now();
  const auto stats = measure_packs(wikipedia(), pack_by_least_squares(wikipedia(), 3));
  CHECK(stats.efficiency >= 0.997);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  const auto in_bins = wikipedia_in_bins(4);
  CHECK(in_bins.size() == 129);
  CHECK(measure_packs(in_bins, pack_by_least_squares(in_bins, 3)).efficiency >= 0.9998);
  CHECK(measure_packs(in_bins, pack_shortest_first(in_bins, 3)).efficiency == Approx(0.8959).margin(5e-5));
}

TEST_CASE("every plan has a place for every sequence, no pack is too long or has too many", "[packing]") {
  const std::string kind = GENERATE("spfhp", "nnlshp");
  const std::int64_t depth = GENERATE(1, 2, 3), context = GENERATE(1, 2, 7, 40);
  const auto histogram = random_histogram(context, static_cast<std::uint64_t>(context + 100 * depth));
  CAPTURE(kind, depth, context);
  const auto plan = make_pack_plan(histogram, packing(kind, depth));
  const auto places = places_by_length(plan, histogram.size());
  for (std::size_t length = 1; length < histogram.size(); ++length) {
    CAPTURE(length);
    CHECK(places[length] >= histogram[length]);
    if (kind == "spfhp") CHECK(places[length] == histogram[length]);
  }
  for (const auto& pack : plan.kinds) {
    CHECK(pack.count > 0);
    CHECK(std::ssize(pack.lengths) <= depth);
    CHECK(std::accumulate(pack.lengths.begin(), pack.lengths.end(), std::int64_t{0}) <= context);
  }
}

TEST_CASE("every pack that is planned gets a sequence, and statistics count no other", "[packing]") {
  const std::int64_t depth = GENERATE(1, 2, 3, 4), context = GENERATE(5, 16, 40);
  std::int64_t surplus = 0;  // places without a sequence, in all plans
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(depth, context, seed);
    const Rng rng(seed, RandomPurpose::noise, static_cast<std::uint64_t>(context));
    std::vector<std::int64_t> lengths;
    for (std::uint64_t i = 0; i < 1 + seed; ++i)
      lengths.push_back(1 + static_cast<std::int64_t>(rng.below(i, static_cast<std::uint64_t>(context))));
    const auto config = packing("nnlshp", depth);
    const PackedOrder order(lengths, context, config);
    std::size_t dealt = 0;
    for (std::int64_t i = 0; i < order.packs(); ++i) {
      CHECK_FALSE(order.at(1, i).empty());
      dealt += order.at(1, i).size();
    }
    CHECK(dealt == lengths.size());
    CHECK(measure_packing(lengths, context, config).packs == order.packs());
    const auto plan = make_pack_plan(length_histogram(lengths, context), config);
    for (const auto count : places_by_length(plan, static_cast<std::size_t>(context) + 1)) surplus += count;
    surplus -= std::ssize(lengths);
  }
  if (depth > 1) CHECK(surplus > 0);
}

TEST_CASE("no lengths, or one, can be packed", "[packing]") {
  const std::string kind = GENERATE("spfhp", "nnlshp");
  CHECK(make_pack_plan({0, 0, 0, 0}, packing(kind, 2)).packs() == 0);
  CHECK(make_pack_plan({0, 0, 0, 5}, packing(kind, 2)).packs() == 5);
  // Shortest-pack-first opens packs for all sequences of a length at once: none of them joins another.
  CHECK(make_pack_plan({0, 0, 6, 0, 0}, packing(kind, 2)).packs() == (kind == "spfhp" ? 6 : 3));
}

TEST_CASE("every epoch holds each sequence once, in another order, by seed and epoch alone", "[packing]") {
  const std::string kind = GENERATE("spfhp", "nnlshp");
  const std::int64_t context = 30;
  std::vector<std::int64_t> lengths;
  const Rng rng(4, RandomPurpose::noise);
  for (std::uint64_t i = 0; i < 500; ++i) lengths.push_back(1 + static_cast<std::int64_t>(rng.below(i, 30)));
  const PackedOrder order(lengths, context, packing(kind, 3));
  const auto epoch = [&](std::uint64_t seed, std::int64_t number) {
    std::vector<std::vector<std::size_t>> packs;
    for (std::int64_t i = 0; i < order.packs(); ++i) packs.push_back(order.at(seed, number * order.packs() + i));
    return packs;
  };
  const auto first = epoch(1, 0), second = epoch(1, 1);
  for (const auto& packs : {first, second}) {
    std::vector<std::size_t> all;
    for (const auto& pack : packs) {
      std::int64_t length = 0;
      for (const auto i : pack) length += lengths[i];
      CHECK(length <= context);
      CHECK_FALSE(pack.empty());
      all.insert(all.end(), pack.begin(), pack.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<std::size_t> expected(lengths.size());
    std::iota(expected.begin(), expected.end(), std::size_t{0});
    CHECK(all == expected);
  }
  CHECK(first != second);
  CHECK(first != epoch(2, 0));
  CHECK(first == epoch(1, 0));  // after others were asked for
}

TEST_CASE("non-negative least squares meet the conditions of an optimum", "[packing]") {
  const Rng rng(static_cast<std::uint64_t>(GENERATE(1, 2, 3, 4, 5)), RandomPurpose::noise);
  constexpr std::int64_t rows = 12;
  std::uint64_t draw = 0;
  std::vector<SparseColumn> columns;
  for (int j = 0; j < 60; ++j) {
    SparseColumn column;
    for (std::int64_t row = 0; row < rows; ++row)
      if (rng.below(draw++, 4) == 0) column.push_back({row, rng.uniform(draw++) * 2 - 0.5});
    columns.push_back(column);
    if (j % 7 == 0) columns.push_back(column);  // a combination of others
  }
  std::vector<double> b;
  for (std::int64_t row = 0; row < rows; ++row) b.push_back(rng.uniform(draw++) * 10 - 3);
  const auto x = nonnegative_least_squares(columns, b);
  auto residual = b;
  for (std::size_t j = 0; j < columns.size(); ++j)
    for (const auto& [row, value] : columns[j]) residual[static_cast<std::size_t>(row)] -= value * x[j];
  int above_zero = 0;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    double slope = 0;
    for (const auto& [row, value] : columns[j]) slope += value * residual[static_cast<std::size_t>(row)];
    CHECK(x[j] >= 0);
    CHECK(slope < 1e-8);
    if (x[j] > 0) CHECK(std::abs(slope) < 1e-8);
    above_zero += x[j] > 0;
  }
  CHECK(above_zero > 3);
}

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
