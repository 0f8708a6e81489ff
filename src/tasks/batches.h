#pragma once
// Batches on the device, and the losses over them.

#include <limits>

#include "data/token_rows.h"
#include "model/batch.h"
#include "tasks/task.h"

namespace metaformer {

Batch to_batch(const TokenRows& rows, torch::Device device);

// What has padding gets more of it, up to a multiple of 8 tokens or to `context`: batches then have few shapes, and
// libraries that compile a kernel for a shape find it again.
Batch to_batch(const LabelledRows& rows, torch::Device device, std::int64_t context);

// The source is padded as labelled texts are.
Batch to_batch(const PairRows& rows, torch::Device device, std::int64_t context);

// The `length` tokens from each start on, and the token after each of them, cut from tokens_t (int) on its device: a
// batch costs a copy of its starts. Every window must lie within tokens_t. `segments_t`: of every token; undefined:
// one.
Batch cut_windows(const torch::Tensor& tokens_t, const std::vector<std::int64_t>& starts, std::int64_t length,
                  const torch::Tensor& segments_t = {});

// The first rows of a batch, of them at most the first `tokens`, with the weight of the targets that are left.
Batch beginning_of(const Batch& batch, std::int64_t rows,
                   std::int64_t tokens = std::numeric_limits<std::int64_t>::max());

// [rows, columns] long, copied to the device.
torch::Tensor to_tensor(const std::vector<std::int64_t>& values, std::int64_t rows, torch::Device device);

// Logits as they go into a cross-entropy: float32 at least.
torch::Tensor widened(const torch::Tensor& logits);

// Cross-entropy summed over the targets that are not -1: logits [..., v], targets [...].
torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& targets, double smoothing = 0);

// The same with the weights of the batch's targets. Logits of all tokens, or of those that the batch names.
torch::Tensor token_loss(const torch::Tensor& logits, const Batch& batch);

// Adds "loss" and "correct" (tokens whose likeliest prediction is right) and "weight" (targets).
void score_tokens(const torch::Tensor& logits, const Batch& batch, ScoreSums& sums);

// Rows of an evaluation batch: about 8,192 tokens, large enough to be efficient, small enough for any memory.
std::int64_t evaluation_rows(std::int64_t row_length);

// The objective of language models: cross-entropy of the next token.
class TokenObjective : public Objective {
 public:
  torch::Tensor loss(const torch::Tensor& logits_bcv, const Batch& batch) const override {
    return token_loss(logits_bcv, batch);
  }
};

}  // namespace metaformer
