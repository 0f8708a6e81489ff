// Rows of the tasks that test a model's memory, against their definitions.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "config/loader.h"
#include "data/recall.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer::test_recall {

namespace {

TaskConfig task_of(const std::string& task) {
  return default_experiment({"task=" + task, "model.context=1024"}).config.task;
}

RecallRow row_number(const TaskConfig& task, std::uint64_t number, bool trains = true) {
  return draw_row(task, Rng(number, RandomPurpose::batches), trains);
}

using Numbers = std::vector<std::int64_t>;

Numbers answers_of(const RecallRow& row) {
  Numbers answers;
  std::copy_if(row.targets.begin(), row.targets.end(), std::back_inserter(answers),
               [](auto target) { return target >= 0; });
  return answers;
}

// The value after the last occurrence of the key before `end`, in the pairs at the beginning of the row.
std::int64_t last_value(const RecallRow& row, std::int64_t key, std::size_t end) {
  std::int64_t value = -1;
  for (std::size_t i = 0; i + 1 < end; i += 2)
    if (row.ids[i] == key) value = row.ids[i + 1];
  return value;
}

// Pearson's statistic of counts against expected ones.
double chi_square(const std::vector<double>& counts, const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  return sum;
}

}  // namespace

TEST_CASE("the recalled value of a key is the last one in the row's pairs", "[recall]") {
  const auto updates = GENERATE(0, 3);
  const auto queries = GENERATE(1, 2);
  const auto filler = GENERATE(as<std::string>(), "zero", "random");
  const auto task =
      task_of(fmt::format("{{kind: recall, vocabulary: 40, pairs: 5, updates: {}, queries: {}, length: 48, "
                          "filler: {}}}",
                          updates, queries, filler));
  const auto prompt = static_cast<std::size_t>(2 * (5 + updates));
  for (std::uint64_t n = 0; n < 200; ++n) {
    const auto row = row_number(task, n);
    REQUIRE(row.ids.size() == 48);
    REQUIRE(row.targets.size() == 48);
    std::map<std::int64_t, int> asked;
    std::set<std::int64_t> keys, first_values;
    for (std::size_t i = 0; i < prompt; i += 2) {
      CHECK((row.ids[i] >= 1 && row.ids[i] < 20));
      CHECK((row.ids[i + 1] >= 20 && row.ids[i + 1] < 40));
      if (i < 10) keys.insert(row.ids[i]), first_values.insert(row.ids[i + 1]);
      if (i >= 10) CHECK(last_value(row, row.ids[i], i) != row.ids[i + 1]);
    }
    CHECK(keys.size() == 5);
    CHECK(first_values.size() == 5);
    for (std::size_t i = 0; i < row.ids.size(); ++i) {
      if (row.targets[i] < 0) {
        if (i >= prompt && filler == "zero") CHECK(row.ids[i] == 0);
        continue;
      }
      CHECK(i >= prompt);
      CHECK(i % 2 == 0);
      ++asked[row.ids[i]];
      CHECK(row.targets[i] == last_value(row, row.ids[i], prompt));
    }
    CHECK(asked.size() == 5);
    for (const auto& [key, times] : asked) CHECK(times == queries);
  }
}

// The single query of a row is in slot g with a probability proportional to (g + 1)^(power - 1).
TEST_CASE("the gaps of queries follow a power law", "[recall]") {
  const double power = GENERATE(0.01, 0.5, 1.0);
  constexpr std::size_t slots = 15, rows = 20000;
  const auto task =
      task_of(fmt::format("{{kind: recall, vocabulary: 40, pairs: 1, length: 32, gap_power: {}}}", power));
  std::vector<double> counts(slots), expected(slots);
  double total = 0;
  for (std::size_t g = 0; g < slots; ++g) total += expected[g] = std::pow(static_cast<double>(g + 1), power - 1);
  for (auto& count : expected) count *= rows / total;
  for (std::uint64_t n = 0; n < rows; ++n) {
    const auto row = row_number(task, n);
    const auto place = std::find_if(row.targets.begin(), row.targets.end(), [](auto target) { return target >= 0; });
    ++counts[static_cast<std::size_t>(place - row.targets.begin() - 2) / 2];
  }
  CHECK(chi_square(counts, expected) < 36.1);  // exceeded once in a thousand, 14 degrees of freedom
}

// Two keys in three slots: the first slot is drawn by weight, the second by weight among the remaining ones.
TEST_CASE("the slots of several queries are drawn one by one without replacement", "[recall]") {
  constexpr double rows = 20000;
  const auto task = task_of("{kind: recall, vocabulary: 40, pairs: 2, length: 10, gap_power: 0.01}");
  const std::vector<double> weights = {1, std::pow(2, -0.99), std::pow(3, -0.99)};
  const double all = weights[0] + weights[1] + weights[2];
  std::map<std::pair<std::size_t, std::size_t>, double> counts;
  for (std::uint64_t n = 0; n < rows; ++n) {
    const auto row = row_number(task, n);
    const auto slot_of = [&](std::int64_t key) {
      for (std::size_t i = 4; i < 10; i += 2)
        if (row.targets[i] >= 0 && row.ids[i] == key) return (i - 4) / 2;
      return std::size_t{3};
    };
    ++counts[{slot_of(row.ids[0]), slot_of(row.ids[2])}];
  }
  double statistic = 0;
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < 3; ++b) {
      if (a == b) continue;
      const double expected = rows * weights[a] / all * weights[b] / (all - weights[a]);
      statistic += (counts[{a, b}] - expected) * (counts[{a, b}] - expected) / expected;
    }
  CHECK(counts.size() == 6);
  CHECK(statistic < 20.6);  // once in a thousand, 5 degrees of freedom
}

TEST_CASE("induction asks for the token that followed the mark", "[recall]") {
  const auto triggers = GENERATE(1, 3);
  const auto task = task_of(fmt::format("{{kind: induction, vocabulary: 12, length: 20, triggers: {}}}", triggers));
  std::set<std::ptrdiff_t> numbers;
  for (std::uint64_t n = 0; n < 500; ++n) {
    const auto row = row_number(task, n);
    REQUIRE(row.ids.size() == 20);
    REQUIRE(row.ids.back() == 11);
    REQUIRE(answers_of(row).size() == 1);
    REQUIRE(row.targets.back() >= 0);
    for (std::size_t i = 0; i + 1 < row.ids.size(); ++i)
      if (row.ids[i] == 11) CHECK(row.ids[i + 1] == row.targets.back());
    numbers.insert(std::count(row.ids.begin(), row.ids.end() - 1, 11));
  }
  CHECK(*numbers.begin() == 1);
  CHECK(*numbers.rbegin() == triggers);
}

TEST_CASE("the answer of a selective copy is the row without its blanks", "[recall]") {
  const auto task = task_of("{kind: selective_copy, vocabulary: 7, length: 40, tokens: 6}");
  std::vector<double> before(6);
  for (std::uint64_t n = 0; n < 2000; ++n) {
    const auto row = row_number(task, n);
    REQUIRE(row.ids.size() == 40);
    const auto mark = std::find(row.ids.begin(), row.ids.end(), 6);
    CHECK(mark - row.ids.begin() == 33);
    Numbers copied;
    for (auto id = row.ids.begin(); id != mark; ++id) {
      if (*id == 5) ++before[copied.size()];
      if (*id != 5) copied.push_back(*id);
    }
    CHECK(std::all_of(mark + 1, row.ids.end(), [](auto id) { return id == 5; }));
    CHECK(Numbers(row.targets.end() - 6, row.targets.end()) == copied);
    CHECK(answers_of(row) == copied);
  }
  CHECK(chi_square(before, std::vector<double>(6, 2000.0 * 27 / 6)) < 20.6);
}

TEST_CASE("parity and majority count the ones before the mark", "[recall]") {
  const auto parity = task_of("{kind: parity, length: 12}"), majority = task_of("{kind: majority, length: 12}");
  for (std::uint64_t n = 0; n < 200; ++n)
    for (const auto* task : {&parity, &majority}) {
      const auto row = row_number(*task, n);
      REQUIRE(row.ids.back() == 2);
      const auto ones = std::count(row.ids.begin(), row.ids.end(), 1);
      CHECK(std::count(row.ids.begin(), row.ids.end(), 0) == 11 - ones);
      CHECK(answers_of(row) == Numbers{task == &parity ? ones % 2 : (ones >= 6 ? 1 : 0)});
    }
}

TEST_CASE("in-context recall asks for the values of keys that occurred before in the row", "[recall]") {
  const auto noise = GENERATE(as<std::string>(), "", ", noise: 0.3, noise_vocabulary: 4");
  const auto task = task_of("{kind: in_context_recall, vocabulary: 12, length: 40" + noise + "}");
  const std::int64_t keys = noise.empty() ? 6 : 4;
  std::int64_t noisy = 0;
  for (std::uint64_t n = 0; n < 500; ++n) {
    const auto row = row_number(task, n);
    REQUIRE(row.ids.size() == 39);
    std::map<std::int64_t, std::int64_t> value_of;
    for (std::size_t i = 0; i < 39; i += 2) {
      const auto key = row.ids[i], value = i + 1 < 39 ? row.ids[i + 1] : row.targets[i];
      if (i + 1 < 39) CHECK(row.targets[i + 1] == -1);
      if (key >= 2 * keys) {
        ++noisy;
        CHECK(value >= 2 * keys);
        CHECK(row.targets[i] == -1);
        continue;
      }
      CHECK(key < keys);
      CHECK((value >= keys && value < 2 * keys));
      const auto known = value_of.find(key);
      CHECK(row.targets[i] == (known == value_of.end() ? -1 : known->second));
      value_of.emplace(key, value);
      CHECK(value == value_of.at(key));
    }
    CHECK(row.targets.back() >= 0);
  }
  const double expected = noise.empty() ? 0 : 500 * 18 * 0.3;  // one pair and the last one have no noise
  CHECK(std::abs(static_cast<double>(noisy) - expected) <= 4 * std::sqrt(expected * 0.7));
}

// Tokens of keys are below those of values.
TEST_CASE("fuzzy recall ends with a known key, whose value is the answer", "[recall]") {
  const auto trains = GENERATE(true, false);
  const auto task = task_of("{kind: fuzzy_recall, vocabulary: 16, length: 64, longest: 3}");
  std::set<std::size_t> key_sizes, value_sizes;
  for (std::uint64_t n = 0; n < 500; ++n) {
    const auto row = row_number(task, n, trains);
    REQUIRE(row.ids.size() == 64);
    auto sequence = row.ids;
    sequence.push_back(row.targets.back());
    std::map<Numbers, Numbers> value_of;
    Numbers key, last_key;
    bool was_known = false;
    std::size_t i = 0;
    while (sequence[i] == 15) ++i;
    while (i < sequence.size()) {
      Numbers value;
      key.clear();
      for (; i < sequence.size() && sequence[i] < 7; ++i) key.push_back(sequence[i]);
      const auto first = i;
      for (; i < sequence.size() && sequence[i] >= 7; ++i) value.push_back(sequence[i]);
      REQUIRE_FALSE(value.empty());
      key_sizes.insert(key.size()), value_sizes.insert(value.size());
      const auto known = value_of.find(key);
      was_known = known != value_of.end();
      if (was_known) CHECK(known->second == value);
      for (auto place = first; place < i; ++place) CHECK(row.targets[place - 1] == (was_known ? sequence[place] : -1));
      value_of.emplace(key, value);
    }
    CHECK(was_known);
  }
  CHECK(value_sizes == std::set<std::size_t>{1, 2, 3});
  CHECK(key_sizes == (trains ? std::set<std::size_t>{1, 2, 3} : std::set<std::size_t>{3}));
}

TEST_CASE("the values to memorise are the same in every row, and differ between keys", "[recall]") {
  const auto task = task_of("{kind: memorisation, vocabulary: 21, length: 8}");
  std::map<std::int64_t, std::int64_t> value_of;
  for (std::uint64_t n = 0; n < 300; ++n) {
    const auto row = row_number(task, n);
    for (std::size_t i = 0; i < 8; i += 2) {
      CHECK(row.ids[i] < 10);
      CHECK(row.ids[i + 1] == 20);
      CHECK(row.targets[i] == -1);
      CHECK(value_of.emplace(row.ids[i], row.targets[i + 1]).first->second == row.targets[i + 1]);
    }
  }
  std::set<std::int64_t> values;
  for (const auto& [key, value] : value_of) values.insert(value);
  CHECK(value_of.size() == 10);
  CHECK(values.size() == 10);
  CHECK((*values.begin() >= 10 && *values.rbegin() < 20));
}

TEST_CASE("compression asks for every token of the row", "[recall]") {
  const auto row = row_number(task_of("{kind: compression, vocabulary: 9, length: 30}"), 3);
  CHECK(row.ids.size() == 30);
  CHECK(row.ids.back() == 8);
  CHECK(std::count(row.ids.begin(), row.ids.end(), 8) == 1);
  CHECK(row.targets == row.ids);
}

TEST_CASE("training rows are not among the held-out ones, and do not depend on the division of a step", "[recall]") {
  const auto task = task_of("{kind: induction, vocabulary: 3, length: 8, held_out: 50}");
  const RecallDataset dataset(task);
  std::set<Numbers> trained;
  const auto rows = dataset.training_rows(5, 0, 300);
  for (std::size_t i = 0; i < 300; ++i)
    trained.insert(Numbers(rows.ids.begin() + static_cast<std::ptrdiff_t>(8 * i),
                           rows.ids.begin() + static_cast<std::ptrdiff_t>(8 * i + 8)));
  for (const auto split : held_out_splits) {
    const auto held_out = dataset.rows(split, 5, 0, 50);
    CHECK(held_out.rows == 50);
    CHECK(held_out.ids == dataset.rows(split, 6, 0, 50).ids);
    for (std::size_t i = 0; i < 50; ++i)
      CHECK_FALSE(trained.contains(Numbers(held_out.ids.begin() + static_cast<std::ptrdiff_t>(8 * i),
                                           held_out.ids.begin() + static_cast<std::ptrdiff_t>(8 * i + 8))));
  }
  CHECK(dataset.rows(Split::validation, 5, 0, 50).ids != dataset.rows(Split::test, 5, 0, 50).ids);
  const auto part = dataset.training_rows(5, 120, 7);
  CHECK(part.ids == Numbers(rows.ids.begin() + 8 * 120, rows.ids.begin() + 8 * 127));
  CHECK(dataset.training_rows(6, 0, 300).ids != rows.ids);
}

TEST_CASE("a limited number of training rows repeats in the same order", "[recall]") {
  const RecallDataset dataset(
      task_of("{kind: recall, examples: 10, length: 16, pairs: 2, vocabulary: 64, held_out: 3}"));
  CHECK(dataset.training_rows(1, 0, 10).ids == dataset.training_rows(1, 30, 10).ids);
  CHECK(dataset.training_rows(1, 7, 6).ids == dataset.training_rows(1, 17, 6).ids);
}

TEST_CASE("targets are the answers, or in training all next tokens", "[recall]") {
  const auto task = GENERATE(as<std::string>(), "induction", "in_context_recall", "fuzzy_recall");
  const RecallDataset answers(task_of("{kind: " + task + ", length: 30, held_out: 2}")),
      tokens(task_of("{kind: " + task + ", length: 30, held_out: 2, targets: tokens}"));
  const auto few = answers.training_rows(1, 0, 4), all = tokens.training_rows(1, 0, 4);
  CHECK(few.ids == all.ids);
  CHECK(all.places.empty());
  CHECK(all.target_count == std::ssize(all.ids));
  CHECK(std::ssize(few.places) == few.target_count);
  const auto length = static_cast<std::size_t>(all.length);
  for (std::size_t i = 0; i < all.ids.size(); ++i) {
    CHECK(all.targets[i] == (i % length + 1 < length ? all.ids[i + 1] : few.targets[i]));
    if (few.targets[i] >= 0) CHECK(few.targets[i] == all.targets[i]);
  }
  CHECK(tokens.rows(Split::train, 1, 0, 2).targets == answers.rows(Split::train, 1, 0, 2).targets);
  CHECK(tokens.rows(Split::test, 1, 0, 2).targets == answers.rows(Split::test, 1, 0, 2).targets);
}

TEST_CASE("a task with too few rows for all splits is refused", "[recall]") {
  const auto only_row = task_of("{kind: memorisation, vocabulary: 3, length: 2}");
  const auto [code, message] = failure([&] { RecallDataset(only_row).training_rows(1, 0, 1); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring("task.length") && ContainsSubstring("too few"));
}

}  // namespace metaformer::test_recall
