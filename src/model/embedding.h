#pragma once
// A table of vectors.

#include "config/embedding_config.h"
#include "ops/dropout.h"
#include "ops/layer.h"

namespace metaformer {

class EmbeddingImpl : public Layer {
 public:
  EmbeddingImpl(std::int64_t rows, std::int64_t width, double std = usual_std)
      : weight_rd_(add_parameter("weight", torch::zeros({rows, width}),
                                 {.init = Init::normal(std), .decay = Decay::embeddings})) {}

  torch::Tensor forward(const torch::Tensor& ids_bc) { return torch::embedding(weight_rd_, ids_bc); }

  const torch::Tensor& weight() const { return weight_rd_; }

 private:
  torch::Tensor weight_rd_;
};
TORCH_MODULE(Embedding);

// Of embeddings, by model.embedding.scale.
inline double factor_of(const EmbeddingConfig& config, std::int64_t width) {
  return config.scale == EmbeddingScale::sqrt_width ? std::sqrt(static_cast<double>(width)) : 1;
}

// In training sets features to zero, the same ones at every token of a sequence.
inline torch::Tensor drop_features(const torch::Tensor& x_bcd, double probability, Pass& pass) {
  if (!pass.training || probability == 0) return x_bcd;
  return x_bcd * dropout(torch::ones_like(x_bcd.narrow(1, 0, 1)), probability, pass);
}

}  // namespace metaformer
