// Packing of histograms: published numbers, and properties of every plan; batches of about equally many tokens.

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>

#include "base/random.h"
#include "data/epoch_order.h"
#include "data/packing.h"
#include "support/catch.h"

namespace metaformer::test_packing {

namespace {

// The numbers of sequences with 1 ... 512 tokens in the English Wikipedia of BERT's pretraining (published with Krell
// et al. 2021).
constexpr std::array<std::int64_t, 512> wikipedia_lengths = {
    0,     0,     0,     0,     1821,  1226,  1969,  1315,  1794,  1953,  3082,  3446,  4166,  5062,  9554,  16475,
    19173, 17589, 17957, 19060, 21555, 23524, 26954, 30661, 33470, 36614, 40134, 43256, 46094, 49350, 52153, 55428,
    58109, 60624, 63263, 64527, 65421, 66983, 68123, 68830, 70230, 70486, 72467, 72954, 73955, 74311, 74836, 74489,
    74990, 75377, 74954, 75096, 74784, 74698, 74337, 74638, 74370, 73537, 73597, 73153, 72358, 71580, 71082, 70085,
    69733, 69445, 67818, 67177, 66641, 65709, 64698, 63841, 63218, 62799, 61458, 60848, 60148, 59858, 58809, 58023,
    56920, 55999, 55245, 55051, 53979, 53689, 52819, 52162, 51752, 51172, 50469, 49907, 49201, 49060, 47948, 47724,
    46990, 46544, 46011, 45269, 44792, 44332, 43878, 43984, 42968, 42365, 42391, 42219, 41668, 41072, 40616, 40587,
    39999, 40169, 39340, 38906, 38438, 38142, 37757, 37818, 37535, 37217, 36757, 36589, 36151, 35953, 35531, 35496,
    35089, 35053, 34567, 34789, 34009, 33952, 33753, 33656, 33227, 32954, 32686, 32880, 32709, 31886, 32126, 31657,
    31466, 31142, 31106, 30650, 30316, 30494, 30328, 30157, 29611, 29754, 29445, 28921, 29271, 29078, 28934, 28764,
    28445, 28319, 28141, 28282, 27779, 27522, 27333, 27470, 27289, 27102, 27018, 27066, 26925, 26384, 26188, 26385,
    26392, 26082, 26062, 25660, 25682, 25547, 25425, 25072, 25079, 25346, 24659, 24702, 24862, 24479, 24288, 24127,
    24268, 24097, 23798, 23878, 23893, 23817, 23398, 23382, 23280, 22993, 23018, 23242, 22987, 22894, 22470, 22612,
    22452, 21996, 21843, 22094, 21916, 21756, 21955, 21444, 21436, 21484, 21528, 21597, 21301, 21197, 21281, 21066,
    20933, 21023, 20888, 20575, 20574, 20511, 20419, 20312, 20174, 20023, 20087, 19955, 19946, 19846, 19562, 19710,
    19556, 19477, 19487, 19387, 19225, 19069, 19360, 18655, 19034, 18763, 18800, 19012, 18893, 18714, 18645, 18577,
    18317, 18458, 18374, 18152, 17822, 18102, 17735, 17940, 17805, 17711, 17690, 17703, 17669, 17410, 17583, 17331,
    17313, 16892, 16967, 16870, 16926, 17233, 16845, 16861, 16576, 16685, 16455, 16687, 16747, 16524, 16473, 16349,
    16273, 16255, 16228, 16219, 16021, 16111, 15867, 15751, 16081, 15703, 15751, 15854, 15665, 15469, 15431, 15428,
    15464, 15517, 15335, 15461, 15237, 15292, 15305, 15351, 15078, 14810, 15119, 14780, 14664, 14869, 14722, 14890,
    14672, 14439, 14685, 14706, 14840, 14373, 14286, 14596, 14615, 14168, 14299, 13987, 14167, 14107, 14096, 14202,
    13985, 14118, 14094, 14127, 13896, 13864, 13597, 13572, 13717, 13669, 13782, 13617, 13284, 13333, 13425, 13457,
    13256, 13404, 13318, 13425, 13317, 13179, 13193, 13257, 13160, 12813, 13149, 13010, 12867, 12958, 12818, 12801,
    12749, 12810, 12575, 12673, 12514, 12735, 12523, 12677, 12298, 12469, 12341, 12445, 12477, 12326, 12110, 12087,
    12305, 12156, 12032, 12190, 12150, 11980, 12022, 11825, 11969, 11831, 11997, 11924, 11739, 11685, 11702, 11783,
    11783, 11659, 11647, 11610, 11526, 11577, 11538, 11536, 11497, 11480, 11374, 11234, 11433, 11466, 11475, 11147,
    11376, 11217, 11002, 11245, 11124, 11000, 11129, 10923, 10966, 11071, 11029, 11036, 10972, 11012, 10800, 10936,
    10904, 10750, 10669, 10766, 10780, 10675, 10905, 10511, 10598, 10583, 10658, 10471, 10667, 10601, 10430, 10440,
    10510, 10148, 10468, 10346, 10257, 10286, 10235, 10351, 10182, 10182, 10095, 10192, 9866,  10070, 10148, 9956,
    10132, 10043, 9741,  10003, 10056, 9920,  10021, 9838,  9854,  9740,  9782,  9799,  9798,  9788,  9840,  9747,
    9797,  9893,  9593,  9535,  9658,  9554,  9593,  9530,  9523,  9488,  9548,  9418,  9418,  9508,  9638,  9521,
    9277,  9289,  9255,  9322,  9281,  9351,  9259,  9255,  9225,  9098,  9268,  9227,  9224,  9106,  9239,  3815044};

// Counts of sequences by length, in bins of `width` lengths.
LengthHistogram wikipedia(std::size_t width = 1) {
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

using Packs = std::vector<std::vector<std::size_t>>;

void check_each_once(const Packs& packs, std::size_t count) {
  std::vector<std::size_t> all, expected(count);
  for (const auto& pack : packs) all.insert(all.end(), pack.begin(), pack.end());
  std::sort(all.begin(), all.end());
  std::iota(expected.begin(), expected.end(), std::size_t{0});
  CHECK(all == expected);
}

// The packs of an epoch. Checks that none is empty.
Packs epoch_of(const PackedOrder& order, std::uint64_t seed, std::int64_t epoch) {
  Packs packs;
  for (std::int64_t i = 0; i < order.packs(); ++i) packs.push_back(order.at(seed, epoch * order.packs() + i));
  CHECK(std::none_of(packs.begin(), packs.end(), [](const auto& pack) { return pack.empty(); }));
  return packs;
}

std::vector<std::int64_t> random_lengths(const Rng& rng, std::size_t count, std::int64_t longest) {
  std::vector<std::int64_t> lengths;
  for (std::uint64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<std::int64_t>(rng.below(i, static_cast<std::uint64_t>(longest))));
  return lengths;
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

TEST_CASE("shortest-pack-first and least squares give the published numbers for Wikipedia", "[packing]") {
  const std::map<std::int64_t, std::int64_t> packs_by_depth = {{1, 16'279'552}, {2, 10'101'683}, {3, 9'094'695},
                                                               {4, 8'658'996},  {8, 8'224'673},  {12, 8'166'708},
                                                               {0, 8'166'708}};
  for (const auto& [depth, packs] : packs_by_depth) CHECK(pack_shortest_first(wikipedia(), depth).packs() == packs);
  const auto stats = measure_packs(wikipedia(), pack_shortest_first(wikipedia(), 3));
  CHECK(stats.sequences == 16'279'552);
  CHECK(stats.efficiency == Approx(0.8944).margin(5e-5));
  CHECK(stats.factor == Approx(1.790).margin(5e-4));
  CHECK(stats.speed_up_limit == Approx(2.0013).margin(5e-5));
  // Least squares fill more than 99.7% of packs of three.
  const auto start = std::chrono::steady_clock::now();
  CHECK(measure_packs(wikipedia(), pack_by_least_squares(wikipedia(), 3)).efficiency >= 0.997);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  const auto in_bins = wikipedia(4);
  CHECK(in_bins.size() == 129);
  CHECK(measure_packs(in_bins, pack_by_least_squares(in_bins, 3)).efficiency >= 0.9998);
  CHECK(measure_packs(in_bins, pack_shortest_first(in_bins, 3)).efficiency == Approx(0.8959).margin(5e-5));
}

TEST_CASE("every plan has a place for every sequence, and no pack is too long or has too many sequences", "[packing]") {
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
  // No length, or a single one.
  CHECK(make_pack_plan({0, 0, 0, 0}, packing(kind, 2)).packs() == 0);
  CHECK(make_pack_plan({0, 0, 0, 5}, packing(kind, 2)).packs() == 5);
  // Shortest-pack-first places all sequences of a length at once, so none of them shares a pack with another.
  CHECK(make_pack_plan({0, 0, 6, 0, 0}, packing(kind, 2)).packs() == (kind == "spfhp" ? 6 : 3));
}

TEST_CASE("every pack gets a sequence, and statistics count the same packs", "[packing]") {
  const std::int64_t depth = GENERATE(1, 2, 3, 4), context = GENERATE(5, 16, 40);
  const auto config = packing("nnlshp", depth);
  std::int64_t surplus = 0;  // places without a sequence, in all plans
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(depth, context, seed);
    const Rng rng(seed, RandomPurpose::noise, static_cast<std::uint64_t>(context));
    const auto lengths = random_lengths(rng, 1 + seed, context);
    const PackedOrder order(lengths, context, config);
    check_each_once(epoch_of(order, 1, 0), lengths.size());
    CHECK(measure_packing(lengths, context, config).packs == order.packs());
    const auto plan = make_pack_plan(length_histogram(lengths, context), config);
    for (const auto count : places_by_length(plan, static_cast<std::size_t>(context) + 1)) surplus += count;
    surplus -= std::ssize(lengths);
  }
  if (depth > 1) CHECK(surplus > 0);
}

TEST_CASE("every epoch has each sequence once, in an order that depends only on seed and epoch", "[packing]") {
  const std::int64_t context = 30;
  const auto lengths = random_lengths(Rng(4, RandomPurpose::noise), 500, context);
  const PackedOrder order(lengths, context, packing(GENERATE("spfhp", "nnlshp"), 3));
  const auto first = epoch_of(order, 1, 0), second = epoch_of(order, 1, 1);
  for (const auto& packs : {first, second}) {
    check_each_once(packs, lengths.size());
    for (const auto& pack : packs) {
      std::int64_t length = 0;
      for (const auto i : pack) length += lengths[i];
      CHECK(length <= context);
    }
  }
  CHECK(first != second);
  CHECK(first != epoch_of(order, 2, 0));
  CHECK(first == epoch_of(order, 1, 0));  // also after other epochs
}

TEST_CASE("non-negative least squares meet the conditions of optimality", "[packing]") {
  const Rng rng(static_cast<std::uint64_t>(GENERATE(1, 2, 3, 4, 5)), RandomPurpose::noise);
  constexpr std::int64_t rows = 12;
  std::uint64_t draw = 0;
  std::vector<SparseColumn> columns;
  for (int j = 0; j < 60; ++j) {
    SparseColumn column;
    for (std::int64_t row = 0; row < rows; ++row)
      if (rng.below(draw++, 4) == 0) column.push_back({row, rng.uniform(draw++) * 2 - 0.5});
    columns.push_back(column);
    if (j % 7 == 0) columns.push_back(column);  // a copy of another column
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

TEST_CASE("an epoch of batches has every item once, and no batch exceeds its number of tokens", "[token_batches]") {
  const std::int64_t bucketing = GENERATE(1, 5, 1000);
  const auto lengths = ragged_lengths();
  const TokenBatches batches(lengths, most, bucketing, 7);
  std::int64_t number = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    INFO(epoch);
    Packs seen;
    for (std::int64_t count = 0; count < items; count += std::ssize(seen.back())) {
      seen.push_back(batches.batch(number++));
      std::int64_t longest = 0;
      for (const auto item : seen.back()) longest = std::max(longest, lengths[item].longer);
      REQUIRE(!seen.back().empty());
      REQUIRE(std::ssize(seen.back()) * longest <= most);
    }
    check_each_once(seen, items);
  }
}

TEST_CASE("a batch depends only on seed and number", "[token_batches]") {
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

TEST_CASE("sorted batches are fewer, and are not in order of length", "[token_batches]") {
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

TEST_CASE("an item longer than a batch is a batch of its own", "[token_batches]") {
  const TokenBatches batches({{5, 5}, {100, 2}, {5, 1}}, 10, 1000, 0);
  REQUIRE(batches.batches_per_epoch() == 2);
  Packs all = {batches.batch(0), batches.batch(1)};
  check_each_once(all, 3);
  CHECK(std::count(all.begin(), all.end(), std::vector<std::size_t>{1}) == 1);
}

}  // namespace metaformer::test_packing
