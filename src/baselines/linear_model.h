#pragma once
// model.kind: linear. The weights of a linear classifier over n-grams, as checkpoints keep them.

#include "baselines/linear_classifier.h"
#include "run/checkpoint.h"
#include "tasks/predictor.h"

namespace metaformer {

// The features of each row of a batch: those of its real tokens (segment >= 0).
std::vector<std::vector<std::uint32_t>> row_features(const Batch& batch, const LinearConfig& config);

class LinearModel : public Predictor {
 public:
  LinearModel(const LinearConfig& config, const LinearWeights& weights);

  // From a checkpoint of a run with this config. Errors: as copy_by_name.
  LinearModel(const LinearConfig& config, std::int64_t classes, const Checkpoint& checkpoint);

  // Logits [b, classes]: the bias and the sum of the weights of the features of each row. A row's logits do not depend
  // on the others.
  torch::Tensor logits(const Batch& batch) const override;

  void to(torch::Device device);

  // "weight" [buckets, classes] and "bias" [classes].
  NamedTensors tensors() const { return {{"weight", weight_fv_}, {"bias", bias_v_}}; }
  std::int64_t parameters() const { return weight_fv_.numel() + bias_v_.numel(); }

 private:
  LinearConfig config_;
  torch::Tensor weight_fv_, bias_v_;
};

}  // namespace metaformer
