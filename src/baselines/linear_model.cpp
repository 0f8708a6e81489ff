#include "baselines/linear_model.h"

#include "ops/named_tensors.h"
#include "text/ngram_features.h"

namespace metaformer {

std::vector<std::vector<std::uint32_t>> row_features(const Batch& batch, const LinearConfig& config) {
  const auto ids_bc = batch.ids_bc.to(torch::kCPU).contiguous();
  const auto segments_bc =
      batch.segments_bc.defined() ? batch.segments_bc.to(torch::kCPU).contiguous() : torch::zeros_like(ids_bc);
  const auto length = ids_bc.size(1);
  std::vector<std::vector<std::uint32_t>> features;
  for (std::int64_t row = 0; row < ids_bc.size(0); ++row) {
    const auto* ids = ids_bc.data_ptr<std::int64_t>() + row * length;
    const auto* segments = segments_bc.data_ptr<std::int64_t>() + row * length;
    std::vector<std::int32_t> real;
    for (std::int64_t i = 0; i < length; ++i)
      if (segments[i] >= 0) real.push_back(static_cast<std::int32_t>(ids[i]));
    features.push_back(ngram_features(real, config));
  }
  return features;
}

LinearModel::LinearModel(const LinearConfig& config, const LinearWeights& weights)
    : config_(config),
      weight_fv_(torch::tensor(weights.weights, torch::kFloat).view({-1, weights.classes})),
      bias_v_(torch::tensor(weights.bias, torch::kFloat)) {}

LinearModel::LinearModel(const LinearConfig& config, std::int64_t classes, const Checkpoint& checkpoint)
    : config_(config), weight_fv_(torch::empty({config.buckets, classes})), bias_v_(torch::empty(classes)) {
  copy_by_name(checkpoint.model, tensors(), (checkpoint.folder / "model.safetensors").string());
}

void LinearModel::to(torch::Device device) {
  weight_fv_ = weight_fv_.to(device);
  bias_v_ = bias_v_.to(device);
}

torch::Tensor LinearModel::logits(const Batch& batch) const {
  std::vector<torch::Tensor> sums;
  // Row by row: embedding_bag starts all threads for the few additions of a row, which then wait for each other.
  for (const auto& row : row_features(batch, config_)) {
    const std::vector<std::int64_t> features(row.begin(), row.end());
    const auto features_f = torch::tensor(at::ArrayRef<std::int64_t>(features), torch::kLong);
    sums.push_back(weight_fv_.index_select(0, features_f.to(weight_fv_.device())).sum(0));
  }
  return torch::stack(sums) + bias_v_;
}

}  // namespace metaformer
