#pragma once
// A table of vectors.

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

}  // namespace metaformer
