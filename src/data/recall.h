#pragma once
// Rows of the tasks that test a model's memory (config/recall_config.h). A row depends only on a seed and on its
// number. A stable hash keeps a quarter of all rows for evaluation.

#include "base/random.h"
#include "config/experiment_config.h"
#include "data/token_rows.h"

namespace metaformer {

struct RecallRow {
  std::vector<std::int64_t> ids, targets;  // equally long; target -1: none
};

// One row, whose targets are the answers. `trains`: whether it is for training; keys of fuzzy recall may then be
// shorter.
RecallRow draw_row(const TaskConfig& task, const Rng& rng, bool trains);

class RecallDataset {
 public:
  // Errors (exit code 2): so few different rows that none is found for a split.
  explicit RecallDataset(const TaskConfig& task);

  std::int64_t row_length() const { return std::ssize(held_out_[0].front().ids); }

  // Training rows first ... first + rows - 1 of all training steps. No training row is held out.
  TokenRows training_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;

  // Rows of a split, in a fixed order. Those of validation and test are the same for every seed; those of train are the
  // first training rows.
  std::int64_t count() const { return std::ssize(held_out_[0]); }
  TokenRows rows(Split split, std::uint64_t seed, std::int64_t first, std::int64_t rows) const;

  // Rows of a split drawn at random: a function of (seed, index).
  TokenRows random_rows(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const;

 private:
  RecallRow training_row(std::uint64_t seed, std::int64_t number) const;
  RecallRow row_at(Split split, std::uint64_t seed, std::int64_t number) const;
  RecallRow row_of(const Rng& key, std::int64_t number, bool trains, bool held_out) const;

  TaskConfig task_;
  std::int64_t examples_ = 0;                       // 0: endless
  std::array<std::vector<RecallRow>, 2> held_out_;  // of validation and test
};

}  // namespace metaformer
