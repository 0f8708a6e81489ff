#include "data/datasets/sort_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace metaformer {

namespace {

constexpr std::int64_t most_enumerated = 1 << 20;
constexpr std::size_t evaluation_lists = 10'000;

// digits^length, or `most_enumerated` + 1 if it is larger.
std::int64_t count_lists(const SortConfig& config) {
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < config.length && count <= most_enumerated; ++i) count *= config.digits;
  return std::min(count, most_enumerated + 1);
}

// Attempt `attempt` at drawing the list of a row.
std::vector<std::int64_t> draw_list(const Rng& rng, const SortConfig& config, std::int64_t row, std::uint64_t attempt) {
  constexpr int bits_of_an_attempt = 24;
  const auto length = static_cast<std::uint64_t>(config.length);
  const auto first = (static_cast<std::uint64_t>(row) << bits_of_an_attempt) + attempt * length;
  std::vector<std::int64_t> list;
  for (std::uint64_t i = 0; i < length; ++i)
    list.push_back(static_cast<std::int64_t>(rng.below(first + i, static_cast<std::uint64_t>(config.digits))));
  return list;
}

}  // namespace

bool SortDataset::is_held_out(const std::vector<std::int64_t>& list) {
  std::uint64_t hash = 0;
  for (const auto number : list) hash = Rng::mix(hash ^ static_cast<std::uint64_t>(number));
  return hash % 4 == 0;
}

SortDataset::SortDataset(const SortConfig& config) : config_(config) {
  const auto count = count_lists(config);
  exhaustive_ = count <= most_enumerated;
  if (exhaustive_) {
    enumerate(count);
  } else {
    draw_evaluation_lists();
  }
  if (train_.empty() || held_out_.empty())
    throw Error(
        ExitCode::usage,
        fmt::format("data.sort: {} lists are too few to train on some and test on others; raise length or digits",
                    count));
}

void SortDataset::enumerate(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    List list(static_cast<std::size_t>(config_.length));
    auto rest = i;
    for (auto& number : list) number = std::exchange(rest, rest / config_.digits) % config_.digits;
    (is_held_out(list) ? held_out_ : train_).push_back(std::move(list));
  }
}

void SortDataset::draw_evaluation_lists() {
  const Rng rng(0, RandomPurpose::evaluation);
  std::set<List> seen;
  for (std::int64_t row = 0; train_.size() < evaluation_lists || held_out_.size() < evaluation_lists; ++row) {
    auto list = draw_list(rng, config_, row, 0);
    auto& lists = is_held_out(list) ? held_out_ : train_;
    if (lists.size() < evaluation_lists && seen.insert(list).second) lists.push_back(std::move(list));
  }
}

SortDataset::List SortDataset::random_list(std::uint64_t seed, std::int64_t step, std::int64_t row) const {
  const Rng rng(seed, RandomPurpose::batches, static_cast<std::uint64_t>(step));
  if (exhaustive_) return train_[rng.below(static_cast<std::uint64_t>(row), train_.size())];
  for (std::uint64_t attempt = 0;; ++attempt)
    if (auto list = draw_list(rng, config_, row, attempt); !is_held_out(list)) return list;
}

TokenRows SortDataset::random_rows(std::uint64_t seed, std::int64_t step, std::int64_t first, std::int64_t rows) const {
  TokenRows batch;
  for (auto row = first; row < first + rows; ++row) append(batch, random_list(seed, step, row));
  return batch;
}

std::int64_t SortDataset::list_count(Split split) const { return static_cast<std::int64_t>(lists(split).size()); }

TokenRows SortDataset::rows(Split split, std::int64_t first, std::int64_t rows) const {
  TokenRows batch;
  const auto last = std::min(first + rows, list_count(split));
  for (auto row = first; row < last; ++row) append(batch, lists(split)[static_cast<std::size_t>(row)]);
  return batch;
}

TokenRows SortDataset::random_rows_of(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  TokenRows batch;
  for (std::int64_t row = 0; row < rows; ++row)
    append(batch, lists(split)[rng.below(static_cast<std::uint64_t>(row), lists(split).size())]);
  return batch;
}

// ids: the list and its sorted copy without the last number; targets: the sorted copy, from the list's last number on.
void SortDataset::append(TokenRows& batch, List list) const {
  auto sorted = list;
  std::sort(sorted.begin(), sorted.end());
  ++batch.rows;
  batch.length = 2 * config_.length - 1;
  batch.target_count += config_.length;
  batch.ids.insert(batch.ids.end(), list.begin(), list.end());
  batch.ids.insert(batch.ids.end(), sorted.begin(), sorted.end() - 1);
  batch.targets.insert(batch.targets.end(), list.size() - 1, -1);
  batch.targets.insert(batch.targets.end(), sorted.begin(), sorted.end());
}

}  // namespace metaformer
