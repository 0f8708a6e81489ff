#pragma once
// Lists of numbers as prompts, each followed by its answer, as one sequence that a causal model learns to continue.

#include "base/random.h"
#include "config/experiment_config.h"
#include "data/token_rows.h"

namespace metaformer {

// The prompt of a list: the list itself or, for a task of copying, the list between two zeros. Errors (exit code 2):
// another length, or a 0 in a list to copy.
std::vector<std::int32_t> list_prompt(const ListTask& task, const std::vector<std::int32_t>& list);

// The answer: the sorted list or, for a task of copying, the list itself.
std::vector<std::int32_t> list_answer(const ListTask& task, std::vector<std::int32_t> list);

class ListDataset {
 public:
  // A stable hash of a list, the same for every seed and version, holds a quarter of all lists out. If there are at
  // most 2^20 lists, all of them are enumerated; otherwise evaluations use 10,000 lists of each split, drawn once, or
  // fewer if these have more than 2^20 tokens, but at least 100. Errors (exit code 2): so few lists that a split is
  // empty; `keys` names the keys of the config that make more lists.
  explicit ListDataset(const ListTask& task, std::string_view keys = "task.length, task.digits");

  // Rows `first` ... `first + rows - 1` of step `step`, drawn from the lists that are not held out: a function of
  // (seed, step, row).
  TokenRows random_rows(std::uint64_t seed, std::int64_t step, std::int64_t first, std::int64_t rows) const;

  // The lists to evaluate on, in a fixed order. Validation and test are the same lists: those held out.
  std::int64_t list_count(Split split) const { return std::ssize(lists(split)); }
  TokenRows rows(Split split, std::int64_t first, std::int64_t rows) const;

  // Lists of a split drawn at random: a function of (seed, index).
  TokenRows random_rows_of(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const;

  // The lists themselves: one to train on, and those to evaluate on.
  using List = std::vector<std::int32_t>;
  List random_list(std::uint64_t seed, std::int64_t step, std::int64_t row) const;
  const std::vector<List>& lists(Split split) const { return split == Split::train ? train_ : held_out_; }

  bool is_exhaustive() const { return exhaustive_; }

  template <class Number>
  static bool is_held_out(const std::vector<Number>& list) {
    std::uint64_t hash = 0;
    for (const auto number : list) hash = Rng::mix(hash ^ static_cast<std::uint64_t>(number));
    return hash % 4 == 0;
  }

 private:
  template <class ListOf>
  TokenRows rows_of(std::int64_t first, std::int64_t last, ListOf list_of) const;

  ListTask task_;
  bool exhaustive_ = false;
  std::vector<List> train_, held_out_;
};

}  // namespace metaformer
