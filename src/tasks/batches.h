#pragma once
// Batches on the device, and the losses over them.

#include <limits>

#include "config/train_config.h"
#include "data/token_rows.h"
#include "model/batch.h"
#include "tasks/task.h"

namespace metaformer {

Batch to_batch(const TokenRows& rows, torch::Device device);

// Rows with padding are padded to a multiple of 8 tokens, or to `context`: batches then have few shapes, and libraries
// that compile a kernel for each shape compile few.
Batch to_batch(const LabelledRows& rows, torch::Device device, std::int64_t context);

// The source is padded like labelled texts.
Batch to_batch(const PairRows& rows, torch::Device device, std::int64_t context);

// The `length` tokens from each start on, and as targets the token after each of them, cut from tokens_t (int) on its
// device: a batch costs a copy of its starts. Every window must lie within tokens_t. `segments_t`: the segment of every
// token; undefined: one.
Batch cut_windows(const torch::Tensor& tokens_t, const std::vector<std::int64_t>& starts, std::int64_t length,
                  const torch::Tensor& segments_t = {});

// The rows first ... first + count - 1 with their labels. Padding at the end of all these rows is removed, down to a
// length that is a multiple of 8 (or that of the batch). The weight is still that of the whole batch.
Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count);

// The first `rows` rows of a batch, cut to the first `tokens` tokens, with the weight of the remaining targets.
Batch beginning_of(const Batch& batch, std::int64_t rows,
                   std::int64_t tokens = std::numeric_limits<std::int64_t>::max());

// [rows, columns] long, copied to the device.
torch::Tensor to_tensor(const std::vector<std::int64_t>& values, std::int64_t rows, torch::Device device);

// Logits for a cross-entropy: float32 at least.
torch::Tensor widened(const torch::Tensor& logits);

// Rows of an evaluation batch: about 8,192 tokens, large enough to be efficient, small enough for any memory.
std::int64_t evaluation_rows(std::int64_t row_length);

// Cross-entropy of tokens, summed over the targets with their weights. The logits are those of all tokens, or of the
// places that the batch names. Only targets without weights are smoothed.
Objective token_objective(double smoothing = 0);

struct TokenScores {
  double loss = 0, accuracy = 0;  // means over the targets, neither weighted nor smoothed
  std::int64_t targets = 0;
  double bytes = 0;  // of the text that the targets stand for; 0: not counted
  // The fraction of rows in which every target is the most likely token given the true tokens before it, so that greedy
  // generation writes the whole row.
  double exact_match = 0;
  std::int64_t rows = 0;
};

class TokenMeasures : public Measures {
 public:
  using Report = std::function<Scores(const TokenScores& scores, Split split)>;

  // `by_row`: computes exact_match and rows, too.
  TokenMeasures(Report report, std::vector<std::string> headline, bool by_row)
      : report_(std::move(report)), headline_(std::move(headline)), by_row_(by_row) {}

  void score(const torch::Tensor& logits, const Batch& batch, ScoreSums& sums) const override;
  Evaluation report(const ScoreSums& sums, Split split, Tables) const override;
  std::vector<std::string> headline() const override { return headline_; }

 private:
  Report report_;
  std::vector<std::string> headline_;
  bool by_row_;
};

// A stream that evaluates a split by consecutive rows, evaluation_rows() in each batch.
class RowStream : public BatchStream {
 public:
  // `row_length`: of the longest row.
  RowStream(const TrainConfig& train, std::int64_t row_length) : train_(train), row_length_(row_length) {}

  std::int64_t evaluation_batches(Split split) const override;
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override;
  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override;

 protected:
  // The number of rows of a split, some of these rows as a batch, and the number of their tokens.
  virtual std::int64_t count(Split split) const = 0;
  virtual Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const = 0;
  virtual std::int64_t tokens_of(Split split, std::int64_t first, std::int64_t rows) const = 0;

  void require(Split split) const;  // throws Error (exit code 2) if it has no rows

  std::int64_t row_length() const { return row_length_; }
  std::int64_t rows() const { return train_.batch_size; }
  std::int64_t rows_per_step() const { return rows() * train_.accumulate; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(train_.seed); }

 private:
  TrainConfig train_;
  std::int64_t row_length_;
};

}  // namespace metaformer
