#include "data/list_dataset.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/random.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr std::int64_t most_enumerated = 1 << 20;

// digits^length, or `most_enumerated` + 1 if it is larger.
std::int64_t count_lists(const ListTask& task) {
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < task.length && count <= most_enumerated; ++i) count *= task.digits;
  return std::min(count, most_enumerated + 1);
}

// Attempt number `attempt` to draw the list of a row.
std::vector<std::int32_t> draw_list(const Rng& rng, const ListTask& task, std::int64_t row, std::uint64_t attempt) {
  constexpr int bits_of_an_attempt = 24;
  const auto length = static_cast<std::uint64_t>(task.length);
  const auto first = (static_cast<std::uint64_t>(row) << bits_of_an_attempt) + attempt * length;
  std::vector<std::int32_t> list;
  for (std::uint64_t i = 0; i < length; ++i)
    list.push_back(static_cast<std::int32_t>(rng.below(first + i, static_cast<std::uint64_t>(task.digits))) +
                   static_cast<std::int32_t>(task.first_number()));
  return list;
}

}  // namespace

std::vector<std::int32_t> list_prompt(const ListTask& task, const std::vector<std::int32_t>& list) {
  if (static_cast<std::int64_t>(list.size()) != task.length)
    fail_usage("{} numbers; this model {} {}", list.size(), task.copies ? "copies" : "sorts", task.length);
  if (!task.copies) return list;
  if (std::ranges::find(list, 0) != list.end()) fail_usage("0 stands between lists; numbers are 1 ... {}", task.digits);
  auto prompt = list;
  prompt.insert(prompt.begin(), 0);
  prompt.push_back(0);
  return prompt;
}

std::vector<std::int32_t> list_answer(const ListTask& task, std::vector<std::int32_t> list) {
  if (!task.copies) std::sort(list.begin(), list.end());
  return list;
}

ListDataset::ListDataset(const ListTask& task, std::string_view keys) : task_(task) {
  const auto count = count_lists(task);
  exhaustive_ = count <= most_enumerated;
  for (std::int64_t i = 0; exhaustive_ && i < count; ++i) {
    List list(static_cast<std::size_t>(task_.length));
    auto rest = i;
    for (auto& number : list)
      number =
          static_cast<std::int32_t>(std::exchange(rest, rest / task_.digits) % task_.digits + task_.first_number());
    (is_held_out(list) ? held_out_ : train_).push_back(std::move(list));
  }
  constexpr std::int64_t most_tokens = 1 << 20, fewest = 100, most = 10'000;
  const auto wanted = std::clamp(most_tokens / task_.row_length(), fewest, most);  // lists of a split
  std::set<List> seen;
  for (std::int64_t row = 0; !exhaustive_ && (std::ssize(train_) < wanted || std::ssize(held_out_) < wanted); ++row) {
    auto list = draw_list(Rng(0, RandomPurpose::evaluation), task_, row, 0);
    auto& lists = is_held_out(list) ? held_out_ : train_;
    if (std::ssize(lists) < wanted && seen.insert(list).second) lists.push_back(std::move(list));
  }
  if (train_.empty() || held_out_.empty())
    fail_usage("{}: {} lists are too few to train on some and test on others; raise one of these", keys, count);
}

ListDataset::List ListDataset::random_list(std::uint64_t seed, std::int64_t step, std::int64_t row) const {
  const Rng rng(seed, RandomPurpose::batches, static_cast<std::uint64_t>(step));
  if (exhaustive_) return train_[rng.below(static_cast<std::uint64_t>(row), train_.size())];
  for (std::uint64_t attempt = 0;; ++attempt)
    if (auto list = draw_list(rng, task_, row, attempt); !is_held_out(list)) return list;
}

// ids: the prompt and the answer without its last number; targets: the answer, from the prompt's last token on.
template <class ListOf>
TokenRows ListDataset::rows_of(std::int64_t first, std::int64_t last, ListOf list_of) const {
  TokenRows batch{.rows = std::max<std::int64_t>(last - first, 0)};
  batch.length = batch.rows > 0 ? task_.row_length() : 0;
  batch.target_count = batch.rows * task_.length;
  for (auto row = first; row < last; ++row) {
    const auto list = list_of(row), prompt = list_prompt(task_, list), answer = list_answer(task_, list);
    batch.ids.insert(batch.ids.end(), prompt.begin(), prompt.end());
    batch.ids.insert(batch.ids.end(), answer.begin(), answer.end() - 1);
    batch.targets.insert(batch.targets.end(), prompt.size() - 1, -1);
    batch.targets.insert(batch.targets.end(), answer.begin(), answer.end());
  }
  return batch;
}

TokenRows ListDataset::random_rows(std::uint64_t seed, std::int64_t step, std::int64_t first, std::int64_t rows) const {
  return rows_of(first, first + rows, [&](std::int64_t row) { return random_list(seed, step, row); });
}

TokenRows ListDataset::rows(Split split, std::int64_t first, std::int64_t rows) const {
  return rows_of(first, std::min(first + rows, list_count(split)),
                 [&](std::int64_t row) { return lists(split)[static_cast<std::size_t>(row)]; });
}

TokenRows ListDataset::random_rows_of(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  return rows_of(0, rows, [&](std::int64_t row) {
    return lists(split)[rng.below(static_cast<std::uint64_t>(row), lists(split).size())];
  });
}

}  // namespace metaformer
