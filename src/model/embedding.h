#pragma once
// Embeddings of tokens and of regions of tokens.

#include <torch/types.h>

#include <iterator>
#include <span>
#include <vector>

#include "config/model_config.h"
#include "model/batch.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/layer.h"

namespace metaformer {

// A table of vectors.
class EmbeddingImpl : public Layer {
 public:
  EmbeddingImpl(std::int64_t rows, std::int64_t width, double std = usual_std)
      : weight_rd_(add_parameter("weight", {rows, width}, {.init = Init::normal(std), .decay = Decay::embeddings})) {}

  torch::Tensor forward(const torch::Tensor& ids_bc) { return embed(weight_rd_, ids_bc); }

  const torch::Tensor& weight() const { return weight_rd_; }

 private:
  torch::Tensor weight_rd_;
};
TORCH_MODULE(Embedding);

// The factor of embeddings by model.embedding.scale.
inline double factor_of(const EmbeddingConfig& config, std::int64_t width) {
  return config.scale == EmbeddingScale::sqrt_width ? std::sqrt(static_cast<double>(width)) : 1;
}

// The vectors of tokens_b times `factor`, [b, width], for decoders. The table is float32, contiguous and on the CPU.
void embed_rows(const torch::Tensor& table_vd, std::span<const std::int32_t> tokens_b, float factor, float* x_bd);

// In training sets features to zero, the same ones at every token of a sequence.
inline torch::Tensor drop_features(const torch::Tensor& x_bcd, double probability, Pass& pass) {
  if (!pass.training || probability == 0) return x_bcd;
  return x_bcd * dropout(torch::ones_like(x_bcd.narrow(1, 0, 1)), probability, pass);
}

// The bucket, 0 ... buckets - 1, of the n-gram that ends at each token of ids_bc: a hash of its n ids only. Tokens
// before the first one (and, given segments, tokens of other segments) count as one special id.
torch::Tensor ngram_buckets(const torch::Tensor& ids_bc, std::int64_t n, std::int64_t buckets,
                            const torch::Tensor& segments_bc = {});

// Embeddings of regions of tokens (Johnson and Zhang 2015): each token gets a vector of the region that ends at it,
// with a part of its features for each size of regions.

class RegionTable;  // of one size

class RegionEmbeddingImpl : public torch::nn::Module {
 public:
  RegionEmbeddingImpl(const SequenceRegionConfig& config, std::int64_t vocabulary, std::int64_t width, double std);

  // The vectors of all sizes of regions side by side, [b, c, width].
  torch::Tensor forward(const Batch& batch) const;

  // The greatest value of each feature in each labelled text, for each size of regions: [l, features of the size].
  std::vector<torch::Tensor> greatest(const Batch& batch) const;

  std::int64_t sizes() const { return std::ssize(tables_); }

  const torch::Tensor& weight() const;  // of one of the tables

 private:
  std::vector<std::shared_ptr<RegionTable>> tables_;  // of rising size
};
TORCH_MODULE(RegionEmbedding);

}  // namespace metaformer
