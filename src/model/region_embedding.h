#pragma once
// Embeddings of regions of tokens (Johnson and Zhang 2015): each token gets a vector of the region that ends at it,
// with a part of its features for each size of regions.

#include <algorithm>
#include <iterator>
#include <vector>

#include "config/embedding_config.h"
#include "model/batch.h"
#include "ops/layer.h"

namespace metaformer {

// Regions of one size, of whose tokens each place has rows of a table, or all places have the same ones.
class RegionLayer : public Layer {
 public:
  const torch::Tensor& weight() const { return weight_rd_; }

 protected:
  RegionLayer(std::int64_t size, std::int64_t tables, std::int64_t vocabulary, std::int64_t width, double std);

  // Which row of the table each place of each token's region has, [b, c, p]; -1 where nothing stands.
  torch::Tensor rows_bcp(const Batch& batch) const;

  const torch::Tensor& bias() const { return bias_d_; }

 private:
  std::int64_t size_, tables_, vocabulary_;
  GradientRows gradient_rows_;
  torch::Tensor weight_rd_, bias_d_;
};

// Regions in any order: u = x / sqrt(1 + |x|^2), x = max(0, b + the sum of W[id] over the tokens of the region).
class RegionBagImpl : public RegionLayer {
 public:
  RegionBagImpl(std::int64_t size, std::int64_t vocabulary, std::int64_t width, double std)
      : RegionLayer(size, /*tables=*/1, vocabulary, width, std) {}

  torch::Tensor forward(const Batch& batch) const;  // [b, c, width]
};
TORCH_MODULE(RegionBag);

// Regions in order: max(0, b + W_0[id of the token] + W_1[id of the token before it] + ... + W_(size-1)[...]), and with
// the vector u of a bag + u V. What is before the first token of a segment adds nothing. As a convolution, W_i is the
// kernel's slice size - 1 - i.
class RegionTableImpl : public RegionLayer {
 public:
  // `bag_width`: of u; 0: there is none.
  RegionTableImpl(std::int64_t size, std::int64_t vocabulary, std::int64_t width, std::int64_t bag_width, double std);

  // u_bcm: undefined without a bag.
  torch::Tensor forward(const Batch& batch, const torch::Tensor& u_bcm) const;  // [b, c, width]

  // The greatest value of each feature in a labelled text, [l, width]; 0 for a text without tokens.
  torch::Tensor greatest(const Batch& batch, const torch::Tensor& u_bcm) const;

 private:
  torch::Tensor bag_weight_md_;
};
TORCH_MODULE(RegionTable);

class RegionEmbeddingImpl : public torch::nn::Module {
 public:
  // `config`: sequence or bag.
  RegionEmbeddingImpl(const RegionConfig& config, std::int64_t vocabulary, std::int64_t width, double std);

  // The vectors of all sizes of regions side by side, [b, c, width].
  torch::Tensor forward(const Batch& batch) const;

  // Of each labelled text and size of regions, [l, features of the size].
  std::vector<torch::Tensor> greatest(const Batch& batch) const;

  std::int64_t sizes() const { return std::max<std::int64_t>(1, std::ssize(tables_)); }

  const torch::Tensor& weight() const {  // of one of the tables
    return tables_.empty() ? bag_->weight() : tables_.front()->weight();
  }

 private:
  torch::Tensor bag_vectors(const Batch& batch) const;  // undefined: none

  std::vector<RegionTable> tables_;  // of rising size; none: the bag is all
  RegionBag bag_{nullptr};
};
TORCH_MODULE(RegionEmbedding);

}  // namespace metaformer
