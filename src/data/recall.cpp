#include "data/recall.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>

#include "data/list_dataset.h"

namespace metaformer {

namespace {

// The random numbers of one row, one after another.
class Draws {
 public:
  explicit Draws(const Rng& rng) : rng_(rng) {}

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(rng_.below(next_++, static_cast<std::uint64_t>(n)));
  }
  std::int64_t between(std::int64_t first, std::int64_t last) { return first + below(last + 1 - first); }
  double uniform() { return rng_.uniform(next_++); }

  std::vector<std::int64_t> tokens(std::int64_t count, std::int64_t n) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    for (auto& token : all) token = below(n);
    return all;
  }

  // `count` different numbers out of first ... first + n - 1; every order is equally likely.
  std::vector<std::int64_t> different(std::int64_t count, std::int64_t first, std::int64_t n) {
    std::vector<std::int64_t> all;
    std::unordered_set<std::int64_t> seen;
    while (std::ssize(all) < count)
      if (const auto number = first + below(n); seen.insert(number).second) all.push_back(number);
    return all;
  }

  // `count` different indices, one after another, each with a probability proportional to its weight among those that
  // are left: the smallest of exponential variables with these rates (Efraimidis and Spirakis 2006).
  std::vector<std::int64_t> by_weight(std::int64_t count, const std::vector<double>& weights) {
    std::vector<std::pair<double, std::int64_t>> times;
    for (std::size_t i = 0; i < weights.size(); ++i)
      times.emplace_back(-std::log1p(-uniform()) / weights[i], static_cast<std::int64_t>(i));
    std::partial_sort(times.begin(), times.begin() + count, times.end());
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < count; ++i) chosen.push_back(times[static_cast<std::size_t>(i)].second);
    return chosen;
  }

 private:
  Rng rng_;
  std::uint64_t next_ = 0;
};

std::size_t at(std::int64_t place) { return static_cast<std::size_t>(place); }

void append(std::vector<std::int64_t>& to, const std::vector<std::int64_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// A row of a sequence whose last token is only a target. `is_answer`: whether each token is a target.
RecallRow row_of_sequence(std::vector<std::int64_t> sequence, const std::vector<bool>& is_answer) {
  RecallRow row;
  for (std::size_t i = 1; i < sequence.size(); ++i) row.targets.push_back(is_answer[i] ? sequence[i] : -1);
  sequence.pop_back();
  row.ids = std::move(sequence);
  return row;
}

RecallRow draw(const RecallConfig& task, Draws& draws, bool) {
  const auto half = task.vocabulary / 2;
  const auto keys = draws.different(task.pairs, 1, half - 1);
  auto values = draws.different(task.pairs, half, task.vocabulary - half);
  RecallRow row;
  for (std::size_t i = 0; i < keys.size(); ++i) append(row.ids, {keys[i], values[i]});
  for (const auto updated : draws.different(task.updates, 0, task.pairs)) {
    auto& value = values[at(updated)];
    const auto other = half + draws.below(task.vocabulary - half - 1);
    value = other + (other >= value ? 1 : 0);  // any value but the previous one
    append(row.ids, {keys[at(updated)], value});
  }
  std::vector<double> weights;
  for (std::int64_t gap = 1; gap <= task.slots(); ++gap)
    weights.push_back(std::pow(static_cast<double>(gap), task.gap_power - 1));
  const auto first = std::ssize(row.ids);
  row.ids.resize(at(task.length), 0);
  row.targets.assign(at(task.length), -1);
  const auto slots = draws.by_weight(task.pairs * task.queries, weights);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto place = at(first + 2 * slots[i]);
    row.ids[place] = keys[i % keys.size()];
    row.targets[place] = values[i % keys.size()];
  }
  if (task.filler == Filler::random)
    for (auto place = at(first); place < row.ids.size(); ++place)
      if (row.targets[place] < 0) row.ids[place] = draws.below(task.vocabulary);
  return row;
}

RecallRow draw(const InductionConfig& task, Draws& draws, bool) {
  const auto mark = task.vocabulary - 1, before = task.length - 1;
  auto sequence = draws.tokens(before, mark);
  std::vector<std::int64_t> places;
  const auto triggers = draws.below(2) == 0 ? 1 : task.triggers;
  for (std::int64_t i = 0; i < triggers; ++i) places.push_back(draws.below(before - 1));
  std::sort(places.begin(), places.end());
  const auto answer = sequence[at(places.front() + 1)];
  std::int64_t free_from = 0;
  for (const auto place : places) {
    if (place < free_from) continue;
    sequence[at(place)] = mark;
    sequence[at(place + 1)] = answer;
    free_from = place + 2;
  }
  append(sequence, {mark, answer});
  std::vector<bool> is_answer(sequence.size());
  is_answer.back() = true;
  return row_of_sequence(std::move(sequence), is_answer);
}

// For every blank, draws the token before which it stands.
RecallRow draw(const SelectiveCopyConfig& task, Draws& draws, bool) {
  const auto blank = task.vocabulary - 2, mark = task.vocabulary - 1;
  const auto copied = draws.tokens(task.tokens, blank);
  std::vector<std::int64_t> blanks_before(copied.size());
  for (auto i = 2 * task.tokens + 1; i < task.length; ++i) ++blanks_before[at(draws.below(task.tokens))];
  RecallRow row;
  for (std::size_t i = 0; i < copied.size(); ++i) {
    row.ids.insert(row.ids.end(), at(blanks_before[i]), blank);
    row.ids.push_back(copied[i]);
  }
  row.ids.push_back(mark);
  row.targets.assign(row.ids.size(), -1);
  append(row.targets, copied);
  row.ids.resize(row.targets.size(), blank);
  return row;
}

// Random bits and a mark. The answer at the mark is a function of the number of bits and the number of ones.
template <class Answer>
RecallRow draw_bits(const RecallRows& task, Draws& draws, const Answer& answer) {
  constexpr std::int64_t mark = 2;
  RecallRow row{.ids = draws.tokens(task.length - 1, 2), .targets = std::vector<std::int64_t>(at(task.length), -1)};
  row.targets.back() = answer(std::accumulate(row.ids.begin(), row.ids.end(), std::int64_t{0}));
  row.ids.push_back(mark);
  return row;
}
RecallRow draw(const ParityConfig& task, Draws& draws, bool) {
  return draw_bits(task, draws, [](std::int64_t ones) { return ones % 2; });
}
RecallRow draw(const MajorityConfig& task, Draws& draws, bool) {
  return draw_bits(task, draws, [&](std::int64_t ones) { return 2 * ones > task.length - 1 ? 1 : 0; });
}

// Keys are drawn uniformly. The value of a key is drawn when the row shows the key for the first time. The last pair
// has a key that the row has shown.
RecallRow draw(const InContextRecallConfig& task, Draws& draws, bool) {
  const auto keys = task.symbols() / 2, pairs = task.length / 2, never_noise = draws.below(pairs - 1);
  std::vector<std::int64_t> sequence, value_of(at(keys), -1), shown;
  std::vector<bool> is_answer;
  const auto add_pair = [&](std::int64_t key) {
    auto& value = value_of[at(key)];
    const bool is_first = value < 0;
    if (is_first) value = keys + draws.below(task.symbols() - keys);
    if (is_first) shown.push_back(key);
    append(sequence, {key, value});
    is_answer.insert(is_answer.end(), {false, !is_first});
  };
  for (std::int64_t i = 0; i + 1 < pairs; ++i) {
    if (task.noise > 0 && i != never_noise && draws.uniform() < task.noise) {
      for (const auto noise : draws.tokens(2, task.noise_vocabulary)) sequence.push_back(task.symbols() + noise);
      is_answer.insert(is_answer.end(), {false, false});
    } else {
      add_pair(draws.below(keys));
    }
  }
  add_pair(shown[at(draws.below(std::ssize(shown)))]);
  return row_of_sequence(std::move(sequence), is_answer);
}

// A row of pairs whose keys and values have different tokens. The last key of the row always occurs earlier in the row,
// too.
class FuzzyRow {
 public:
  FuzzyRow(const FuzzyRecallConfig& task, Draws& draws, bool trains)
      : task_(task), draws_(draws), trains_(trains), keys_((task.vocabulary - 1) / 2) {}

  RecallRow draw() {
    const auto last_key = draw_key(), last_value = draw_value();
    const auto last_size = std::ssize(last_key) + std::ssize(last_value);
    const auto longest_pair = 2 * task_.longest, end = task_.length - last_size - longest_pair;
    const auto place = draws_.below(end);
    values_[last_key] = last_value;
    while (std::ssize(sequence_) < end) {
      if (std::ssize(sequence_) + longest_pair > place && !shown_.contains(last_key)) {
        add(last_key);
        continue;
      }
      const auto key = draw_key(), value = draw_value();
      values_.emplace(key, value);  // does nothing if the key has a value
      add(key);
    }
    add(last_key);
    const auto padding = at(task_.length + 1 - std::ssize(sequence_));
    sequence_.insert(sequence_.begin(), padding, task_.vocabulary - 1);
    is_answer_.insert(is_answer_.begin(), padding, false);
    return row_of_sequence(std::move(sequence_), is_answer_);
  }

 private:
  using Tokens = std::vector<std::int64_t>;

  Tokens draw_key() { return draws_.different(trains_ ? draws_.between(1, task_.longest) : task_.longest, 0, keys_); }
  Tokens draw_value() {
    return draws_.different(draws_.between(1, task_.longest), keys_, task_.vocabulary - 1 - keys_);
  }

  void add(const Tokens& key) {
    const auto& value = values_.at(key);
    append(sequence_, key);
    append(sequence_, value);
    is_answer_.insert(is_answer_.end(), key.size(), false);
    is_answer_.insert(is_answer_.end(), value.size(), !shown_.insert(key).second);
  }

  const FuzzyRecallConfig& task_;
  Draws& draws_;
  bool trains_;
  std::int64_t keys_;  // number of tokens for keys; the tokens for values follow
  std::map<Tokens, Tokens> values_;
  std::set<Tokens> shown_;
  Tokens sequence_;
  std::vector<bool> is_answer_;
};

RecallRow draw(const FuzzyRecallConfig& task, Draws& draws, bool trains) {
  return FuzzyRow(task, draws, trains).draw();
}

RecallRow draw(const MemorisationConfig& task, Draws& draws, bool) {
  const auto keys = (task.vocabulary - 1) / 2, question = task.vocabulary - 1;
  std::vector<std::int64_t> value_of(at(task.vocabulary - 1 - keys));  // one for each key, no two the same
  std::iota(value_of.begin(), value_of.end(), keys);
  shuffle(value_of, Rng::with_key(hash_name("memorisation")));
  RecallRow row;
  for (std::int64_t i = 0; i < task.length / 2; ++i) {
    const auto key = draws.below(keys);
    append(row.ids, {key, question});
    append(row.targets, {-1, value_of[at(key)]});
  }
  return row;
}

RecallRow draw(const CompressionConfig& task, Draws& draws, bool) {
  auto ids = draws.tokens(task.length - 1, task.vocabulary - 1);
  ids.push_back(task.vocabulary - 1);
  return {.ids = ids, .targets = ids};
}

bool trains_on_every_token(const TaskConfig& task) {
  return std::visit(
      [](const auto& options) {
        if constexpr (requires { options.targets == TrainedTargets::tokens; })
          return options.targets == TrainedTargets::tokens;
        return false;
      },
      task);
}

// Makes every next token a target. The last target is an answer, and stays.
RecallRow with_every_token(RecallRow row) {
  std::copy(row.ids.begin() + 1, row.ids.end(), row.targets.begin());
  return row;
}

void add_to(TokenRows& rows, const RecallRow& row) {
  const auto first = std::ssize(rows.targets);
  append(rows.ids, row.ids);
  append(rows.targets, row.targets);
  for (std::size_t i = 0; i < row.targets.size(); ++i)
    if (row.targets[i] >= 0) rows.places.push_back(first + static_cast<std::int64_t>(i));
  ++rows.rows;
  rows.length = std::ssize(row.ids);
  rows.target_count = std::ssize(rows.places);
}

// Removes the places if every token is a target.
TokenRows finished(TokenRows rows) {
  if (rows.places.size() == rows.ids.size()) rows.places.clear();
  return rows;
}

}  // namespace

RecallRow draw_row(const TaskConfig& task, const Rng& rng, bool trains) {
  return std::visit(
      [&]<class Task>(const Task& options) -> RecallRow {
        if constexpr (std::is_base_of_v<RecallRows, Task>) {
          Draws draws(rng);
          return draw(options, draws, trains);
        }
        fail_usage("task {} has no rows of its own", Task::kind);
      },
      task);
}

RecallDataset::RecallDataset(const TaskConfig& task) : task_(task), examples_(recall_rows(task)->examples) {
  for (std::uint64_t split = 0; split < held_out_.size(); ++split)
    for (std::int64_t i = 0; i < recall_rows(task)->held_out; ++i)
      held_out_[split].push_back(row_of(Rng(split, RandomPurpose::evaluation), i, /*trains=*/false, /*held_out=*/true));
}

// The first of several attempts that is held out or not, as `held_out` requires.
RecallRow RecallDataset::row_of(const Rng& key, std::int64_t number, bool trains, bool held_out) const {
  constexpr std::uint64_t most_attempts = 1000;
  const auto key_of_row = key.bits(static_cast<std::uint64_t>(number));
  for (std::uint64_t attempt = 0; attempt < most_attempts; ++attempt) {
    auto row = draw_row(task_, Rng::with_key(key_of_row ^ Rng::mix(attempt)), trains);
    if (ListDataset::is_held_out(row.ids) == held_out) return row;
  }
  fail_usage("task.length {}: task {} has too few different rows to train on some and test on others; raise it{}",
             recall_rows(task_)->length, kind_of(task_),
             is<ParityConfig>(task_) || is<MajorityConfig>(task_) ? "" : ", or task.vocabulary");
}

RecallRow RecallDataset::training_row(std::uint64_t seed, std::int64_t number) const {
  const Rng key(seed, RandomPurpose::batches);
  return row_of(key, examples_ > 0 ? number % examples_ : number, /*trains=*/true, /*held_out=*/false);
}

RecallRow RecallDataset::row_at(Split split, std::uint64_t seed, std::int64_t number) const {
  if (split == Split::train) return training_row(seed, number);
  return held_out_[split == Split::validation ? 0 : 1][at(number)];
}

TokenRows RecallDataset::training_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  TokenRows all;
  const bool every_token = trains_on_every_token(task_);
  for (auto i = first; i < first + rows; ++i) {
    auto row = training_row(seed, i);
    add_to(all, every_token ? with_every_token(std::move(row)) : row);
  }
  return finished(std::move(all));
}

TokenRows RecallDataset::rows(Split split, std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  TokenRows all;
  for (auto i = first; i < std::min(first + rows, count()); ++i) add_to(all, row_at(split, seed, i));
  return finished(std::move(all));
}

TokenRows RecallDataset::random_rows(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  TokenRows all;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto number = rng.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(count()));
    add_to(all, row_at(split, seed, static_cast<std::int64_t>(number)));
  }
  return finished(std::move(all));
}

}  // namespace metaformer
