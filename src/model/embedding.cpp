#include "model/embedding.h"

#include <algorithm>
#include <string>

#include "model/batch.h"
#include "ops/region_vectors.h"

namespace metaformer {

namespace {

// The entry `distance` places before each token, [b, c]; -1 before the first one.
torch::Tensor shifted(const torch::Tensor& x_bc, std::int64_t distance) {
  return torch::constant_pad_nd(x_bc, {distance, 0}, -1).narrow(1, 0, x_bc.size(1));
}

// The same for ids, within a segment; -1 for padding, too.
torch::Tensor ids_before(const Batch& batch, std::int64_t distance) {
  const auto ids_bc = shifted(batch.ids_bc, distance);
  const auto& segments_bc = batch.segments_bc;
  if (!segments_bc.defined()) return ids_bc;
  return ids_bc.masked_fill((segments_bc < 0) | (shifted(segments_bc, distance) != segments_bc), -1);
}

}  // namespace

void embed_rows(const torch::Tensor& table_vd, std::span<const std::int32_t> tokens_b, float factor, float* x_bd) {
  const auto width = table_vd.size(1);
  for (const auto token : tokens_b) {
    const auto* row_d = table_vd.const_data_ptr<float>() + token * width;
    x_bd = std::transform(row_d, row_d + width, x_bd, [&](float x) { return x * factor; });
  }
}

torch::Tensor ngram_buckets(const torch::Tensor& ids_bc, std::int64_t n, std::int64_t buckets,
                            const torch::Tensor& segments_bc) {
  // Two rounds of splitmix64 (Steele, Lea, Flood 2014) for every token.
  constexpr auto first_factor = static_cast<std::int64_t>(0xbf58476d1ce4e5b9ULL);
  constexpr auto second_factor = static_cast<std::int64_t>(0x94d049bb133111ebULL);
  const auto scatter = [](const torch::Tensor& x, std::int64_t factor, std::int64_t shift) {
    const auto product = x * factor;
    return product.bitwise_xor(product.bitwise_right_shift(shift));
  };
  auto hash_bc = torch::full_like(ids_bc, n);
  for (std::int64_t back = n - 1; back >= 0; --back) {
    auto earlier_bc = shifted(ids_bc, back);
    if (segments_bc.defined()) earlier_bc = earlier_bc.masked_fill(shifted(segments_bc, back) != segments_bc, -1);
    hash_bc = scatter(scatter(hash_bc + earlier_bc, first_factor, 30), second_factor, 29);
  }
  return hash_bc.remainder(buckets);
}

// Regions of one size: max(0, b + W_0[id of the token] + W_1[id of the token before it] + ... + W_(size-1)[...]).
// Places before the first token of a segment add nothing. As a convolution, W_i is the kernel's slice size - 1 - i.
class RegionTable : public Layer {
 public:
  RegionTable(std::int64_t size, std::int64_t vocabulary, std::int64_t width, double std)
      : size_(size),
        vocabulary_(vocabulary),
        gradient_rows_(size * vocabulary),
        weight_rd_(
            add_parameter("weight", {size * vocabulary, width},
                          {.init = Init::normal(std), .decay = Decay::embeddings, .gradient_rows = &gradient_rows_})),
        bias_d_(add_parameter("bias", width, {.init = Init::zeros()})) {}

  torch::Tensor forward(const Batch& batch) const {  // [b, c, width]
    return region_vectors(rows_bcp(batch), weight_rd_, bias_d_);
  }

  // The greatest value of each feature in a labelled text, [l, width]; 0 for a text without tokens.
  torch::Tensor greatest(const Batch& batch) const {
    auto rows_lcp = rows_bcp(batch);
    if (batch.is_packed())
      rows_lcp = rows_of_texts(rows_lcp, batch).masked_fill(tokens_of_texts_lc(batch).logical_not().unsqueeze(2), -1);
    return greatest_region_vectors(rows_lcp, weight_rd_, bias_d_);
  }

  const torch::Tensor& weight() const { return weight_rd_; }

 private:
  // The row of the table for each place of each token's region, [b, c, p]; -1: an empty place.
  torch::Tensor rows_bcp(const Batch& batch) const {
    std::vector<torch::Tensor> rows;
    for (std::int64_t place = 0; place < size_; ++place) {
      const auto ids_bc = ids_before(batch, place);
      rows.push_back(torch::where(ids_bc < 0, -1, ids_bc + place * vocabulary_));
    }
    return torch::stack(rows, 2).to(torch::kInt);
  }

  std::int64_t size_, vocabulary_;
  GradientRows gradient_rows_;

  torch::Tensor weight_rd_, bias_d_;
};

RegionEmbeddingImpl::RegionEmbeddingImpl(const SequenceRegionConfig& config, std::int64_t vocabulary,
                                         std::int64_t width, double std) {
  for (auto size = config.shortest; size <= config.longest; ++size)
    tables_.push_back(register_module(std::to_string(size),
                                      std::make_shared<RegionTable>(size, vocabulary, width / config.sizes(), std)));
}

torch::Tensor RegionEmbeddingImpl::forward(const Batch& batch) const {
  std::vector<torch::Tensor> vectors;
  for (const auto& table : tables_) vectors.push_back(table->forward(batch));
  return torch::cat(vectors, 2);
}

std::vector<torch::Tensor> RegionEmbeddingImpl::greatest(const Batch& batch) const {
  std::vector<torch::Tensor> all;
  for (const auto& table : tables_) all.push_back(table->greatest(batch));
  return all;
}

const torch::Tensor& RegionEmbeddingImpl::weight() const { return tables_.front()->weight(); }

}  // namespace metaformer
