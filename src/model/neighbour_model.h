#pragma once
// Regions of a text that say which words stand beside them: two-view embeddings (Johnson and Zhang 2015,
// "Semi-supervised convolutional neural networks for text categorization via region embedding").

#include "config/task_config.h"
#include "model/transformer.h"

namespace metaformer {

// A word v on a side s of a region with the vector u has the score o_sv = c_sv (u, 1). Has no logits, which would be 2
// v for each token: the squared error takes a product with (m + 1)^2 numbers instead.
class NeighbourModel : public SequenceModel {
 public:
  NeighbourModel(const TransformerConfig& config, const NeighbouringWordsConfig& task, std::int64_t vocabulary);

  // For each token the squared error of the region that ends there, [b, c, 1]: over both sides, the sum of a o_sv^2
  // over all words v, and of k_v ((o_sv - 1)^2 - a o_sv^2) over the words that stand there; a is task.absent_weight.
  torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass) override;

  // k: how much each word counts where it stands, 1 until set.
  void set_word_weights(const torch::Tensor& weight_v);

  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.width; }

 private:
  torch::Tensor neighbours_bcj(const Batch& batch) const;

  TransformerConfig config_;
  NeighbouringWordsConfig task_;
  std::int64_t region_, vocabulary_;
  Transformer transformer_;
  Embedding words_;  // c, [2 v, m + 1]: those before a region, then those behind it
  torch::Tensor word_weight_v_;
};

}  // namespace metaformer
