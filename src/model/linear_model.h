#pragma once
// The linear classifier over n-grams as a model, so that it is saved, evaluated and asked like every other.

#include "model/sequence_model.h"

namespace metaformer {

// The features of each row of a batch: those of its real tokens (segment >= 0).
std::vector<std::vector<std::uint32_t>> row_features(const Batch& batch, const LinearConfig& config);

class LinearModel : public SequenceModel {
 public:
  LinearModel(const ModelConfig& config, std::int64_t classes);

  // Logits [b, classes]: the bias and the sum of the weights of the features of each row. No state.
  torch::Tensor forward(const Batch& batch, ModelState* state = nullptr) override;
  const ModelConfig& config() const override { return config_; }

 private:
  ModelConfig config_;
  torch::Tensor weight_fv_;  // [buckets, classes]
  torch::Tensor bias_v_;
};

}  // namespace metaformer
