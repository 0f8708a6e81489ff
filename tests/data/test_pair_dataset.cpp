// Pairs of sequences as rows of batches.

#include <algorithm>
#include <cmath>
#include <map>

#include "data/epoch_order.h"
#include "data/pairs.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

constexpr std::int32_t mark = 9;
using Ids = std::vector<std::int32_t>;

struct Options {
  std::int64_t bucketing = 1, context = 64, rows = 4;
  std::int64_t accumulate = 1, seed = 1;
  BatchUnit unit = BatchUnit::sequence;
};

ExperimentConfig config_of(SequenceToSequenceConfig task, const Options& options) {
  task.bucketing = options.bucketing;
  task.batch_unit = options.unit;
  EncoderDecoderConfig model;
  model.context = options.context;
  ExperimentConfig config;
  config.task = std::move(task);
  config.model = std::move(model);
  config.train.batch_size = options.rows;
  config.train.accumulate = options.accumulate;
  config.train.seed = options.seed;
  return config;
}

std::shared_ptr<const PairDataset> pairs_of(const TemporaryFolder& folder, const std::string& table,
                                            const Options& options = {}) {
  SequenceToSequenceConfig task;
  task.data.path = folder.write("pairs.tsv", table).string();
  task.data.tokenizer = WordTokenizerOptions{.min_count = 1};
  task.data.validation_fraction = 0.4;
  return load_pairs(config_of(task, options), true, {});
}

// Targets of 1 to 7 words, sources of other lengths.
std::string ragged_pairs() {
  std::string table = "source\ttarget\n";
  for (int i = 0; i < 60; ++i) {
    table += "s" + std::to_string(i);
    for (int word = 0; word < i % 5; ++word) table += " w";
    table += "\tt" + std::to_string(i);
    for (int word = 0; word < i % 7; ++word) table += " v";
    table += "\n";
  }
  return table;
}

}  // namespace

TEST_CASE("a mark ends sources, begins what is read of targets and ends what is predicted", "[pairs]") {
  const auto rows = to_rows({{Ids{1, 2}, Ids{3, 4, 5}}, {Ids{6}, Ids{7}}}, mark, 10);
  CHECK(rows.source.ids == std::vector<std::int64_t>{1, 2, mark, 6, mark, 0});
  CHECK(rows.source.segments == std::vector<std::int64_t>{0, 0, 0, 0, 0, -1});
  CHECK(rows.target.rows == 2);
  CHECK(rows.target.length == 4);
  CHECK(rows.target.ids == std::vector<std::int64_t>{mark, 3, 4, 5, mark, 7, mark, mark});
  CHECK(rows.target.targets == std::vector<std::int64_t>{3, 4, 5, mark, 7, mark, -1, -1});
  CHECK(rows.target.segments == std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, -1, -1});
  CHECK(rows.target.target_count == 6);
}

TEST_CASE("pairs of one length have no segments, and what is too long is cut off", "[pairs]") {
  const auto equal = to_rows({{Ids{1}, Ids{2}}, {Ids{3}, Ids{4}}}, mark, 10);
  CHECK(equal.source.segments.empty());
  CHECK(equal.target.segments.empty());
  const auto cut = to_rows({{Ids{1, 2, 3, 4}, Ids{5, 6, 7, 8}}}, mark, 3);
  CHECK(cut.source.ids == std::vector<std::int64_t>{1, 2, mark});
  CHECK(cut.target.ids == std::vector<std::int64_t>{mark, 5, 6});
  CHECK(cut.target.targets == std::vector<std::int64_t>{5, 6, 7});  // not the mark: it does not end there
}

TEST_CASE("an epoch has every training pair once, whatever the bucketing, and others are another order", "[pairs]") {
  const TemporaryFolder folder;
  const std::int64_t bucketing = GENERATE(1, 3), steps = 6;
  const auto count = pairs_of(folder, ragged_pairs())->count(Split::train);
  const auto epoch = [&](std::int64_t seed) {
    const auto pairs = pairs_of(folder, ragged_pairs(),
                                {.bucketing = bucketing, .rows = count / steps / 2, .accumulate = 2, .seed = seed});
    std::vector<Ids> sources;
    for (std::int64_t step = 0; step < steps; ++step)
      for (const std::int64_t micro : {0, 1})
        for (const auto& pair : pairs->training_pairs(step, micro)) sources.push_back(pair.source);
    return sources;
  };
  auto first = epoch(1), other = epoch(2);
  CHECK(first == epoch(1));
  CHECK(first != other);
  for (auto* sources : {&first, &other}) {
    std::sort(sources->begin(), sources->end());
    CHECK(std::adjacent_find(sources->begin(), sources->end()) == sources->end());
  }
}

TEST_CASE("bucketing puts pairs of similar length into a step", "[pairs]") {
  const TemporaryFolder folder;
  const auto spread = [&](std::int64_t bucketing) {
    const auto pairs = pairs_of(folder, ragged_pairs(), {.bucketing = bucketing});
    std::size_t sum = 0;
    for (std::int64_t step = 0; step < 30; ++step) {
      std::size_t shortest = 100, longest = 0;
      for (const auto& pair : pairs->training_pairs(step, 0)) {
        shortest = std::min(shortest, pair.target.size());
        longest = std::max(longest, pair.target.size());
      }
      sum += longest - shortest;
    }
    return sum;
  };
  CHECK(2 * spread(10) < spread(1));
}

TEST_CASE("batches of tokens are those of the pairs' lengths with their marks", "[pairs]") {
  const TemporaryFolder folder;
  const std::int64_t most = 24, accumulate = 3;
  const auto pairs = pairs_of(folder, ragged_pairs(),
                              {.bucketing = 4, .rows = most, .accumulate = accumulate, .unit = BatchUnit::token});
  std::map<Ids, int> seen;
  std::int64_t number = 0, rows = 0;
  for (; std::ssize(seen) < pairs->count(Split::train); ++number) {
    const auto batch = pairs->training_pairs(number / accumulate, number % accumulate);
    std::size_t longest = 0;
    for (const auto& pair : batch) {
      longest = std::max({longest, pair.source.size() + 1, pair.target.size() + 1});
      CHECK(++seen[pair.source] == 1);
    }
    CHECK(std::ssize(batch) * static_cast<std::int64_t>(longest) <= most);
    rows += std::ssize(batch);
  }
  CHECK(rows == pairs->count(Split::train));
  const double mean = static_cast<double>(rows) / static_cast<double>(number);
  CHECK(std::abs(pairs->mean_pairs() - mean) < 0.2 * mean);
}

TEST_CASE("sources that do not fit count as what is left of them", "[pairs]") {
  const TemporaryFolder folder;
  std::string table = "source\ttarget\n";
  for (int i = 0; i < 40; ++i) table += "s" + std::to_string(i) + " a b c d e f g h i j k\tt\n";
  const auto pairs = pairs_of(folder, table, {.context = 4, .rows = 12, .unit = BatchUnit::token});
  CHECK(pairs->training_pairs(0, 0).size() == 3);
}

TEST_CASE("held-out pairs come by falling length", "[pairs]") {
  const TemporaryFolder folder;
  const auto pairs = pairs_of(folder, ragged_pairs());
  REQUIRE(pairs->count(Split::validation) > 5);
  CHECK(pairs->count(Split::test) == 0);
  for (std::int64_t i = 1; i < pairs->count(Split::validation); ++i)
    CHECK(pairs->pair(Split::validation, i - 1).target.size() >= pairs->pair(Split::validation, i).target.size());
}

TEST_CASE("training pairs whose targets do not fit are left out, and none that fits is an error", "[pairs]") {
  const TemporaryFolder folder;
  const auto all = pairs_of(folder, ragged_pairs());
  const auto some = pairs_of(folder, ragged_pairs(), {.context = 5});
  CHECK(some->count(Split::train) < all->count(Split::train));
  CHECK(some->count(Split::validation) == all->count(Split::validation));
  for (std::int64_t i = 0; i < some->count(Split::train); ++i) CHECK(some->pair(Split::train, i).target.size() < 5);
  const auto [code, message] = failure([&] { pairs_of(folder, ragged_pairs(), {.context = 1}); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("fits model.context 1: raise it to at least "));
}

TEST_CASE("a text without a token is an error that names its own file", "[pairs]") {
  const TemporaryFolder folder;
  SequenceToSequenceConfig task;
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "one two three " + std::to_string(i) + "\n";
  task.data.path = folder.write("a.de", lines + "x\n").string();
  task.data.target_path = folder.write("b.en", lines + "\xef\xbf\xbd\n").string();  // normalised away
  task.data.validation_path = folder.write("c.tsv", "source\ttarget\nx\tx\n").string();
  task.data.tokenizer = BpeTokenizerOptions{.vocabulary = 40};
  const auto [code, message] = failure([&] { load_pairs(config_of(task, {}), true, {}); });
  CHECK(code == ExitCode::data);
  CHECK_THAT(message, ContainsSubstring("b.en:31: the target has no token"));
}

TEST_CASE("both sides have one tokenizer", "[pairs]") {
  const TemporaryFolder folder;
  std::string table = "source\ttarget\n";
  for (int i = 0; i < 20; ++i) table += "a b s" + std::to_string(i) + "\tc a\n";
  const auto pairs = pairs_of(folder, table);
  const auto& tokenizer = *pairs->codec().tokenizer;
  for (const auto* word : {"a", "b", "c"}) CHECK(tokenizer.encode(word) != Ids{*tokenizer.unknown_id()});
}

TEST_CASE("symbols are copied or reversed; held-out lists are never trained on", "[pairs]") {
  const bool reverses = GENERATE(false, true);
  SequenceToSequenceConfig task;
  const SyntheticPairOptions options{.symbols = 3, .length = 4};
  if (reverses)
    task.data.synthetic = ReversedPairs{options};
  else
    task.data.synthetic = CopiedPairs{options};
  const auto pairs = load_pairs(config_of(task, {.rows = 200}), true, {});
  std::map<Ids, bool> is_held_out;
  for (std::int64_t i = 0; i < pairs->count(Split::validation); ++i)
    is_held_out[pairs->pair(Split::validation, i).source] = true;
  CHECK(is_held_out.size() + static_cast<std::size_t>(pairs->count(Split::train)) == 81);
  for (auto pair : pairs->training_pairs(3, 0)) {
    CHECK_FALSE(is_held_out.contains(pair.source));
    if (reverses) std::reverse(pair.target.begin(), pair.target.end());
    CHECK(pair.source == pair.target);
    CHECK(std::all_of(pair.source.begin(), pair.source.end(), [](auto id) { return id >= 0 && id < 3; }));
  }
}

}  // namespace metaformer
