#include "model/region_embedding.h"

#include <string>

#include "model/ids_at_distance.h"
#include "model/labelled_texts.h"
#include "ops/region_vectors.h"
#include "ops/response_norm.h"
#include "ops/sparse_rows.h"

namespace metaformer {

RegionLayer::RegionLayer(std::int64_t size, std::int64_t tables, std::int64_t vocabulary, std::int64_t width,
                         double std)
    : size_(size),
      tables_(tables),
      vocabulary_(vocabulary),
      gradient_rows_(tables * vocabulary),
      weight_rd_(
          add_parameter("weight", torch::zeros({tables * vocabulary, width}),
                        {.init = Init::normal(std), .decay = Decay::embeddings, .gradient_rows = &gradient_rows_})),
      bias_d_(add_parameter("bias", torch::zeros(width), {.init = Init::zeros()})) {
  list_gradient_rows(weight_rd_, gradient_rows_);
}

torch::Tensor RegionLayer::rows_bcp(const Batch& batch) const {
  std::vector<torch::Tensor> rows;
  for (std::int64_t place = 0; place < size_; ++place) {
    const auto ids_bc = ids_at_distance(batch, -place);
    rows.push_back(torch::where(ids_bc < 0, -1, ids_bc + place % tables_ * vocabulary_));
  }
  return torch::stack(rows, 2).to(torch::kInt);
}

torch::Tensor RegionBagImpl::forward(const Batch& batch) const {
  return response_normalised(region_vectors(rows_bcp(batch), weight(), bias()));
}

RegionTableImpl::RegionTableImpl(std::int64_t size, std::int64_t vocabulary, std::int64_t width, std::int64_t bag_width,
                                 double std)
    : RegionLayer(size, /*tables=*/size, vocabulary, width, std) {
  if (bag_width > 0)
    bag_weight_md_ = add_parameter("bag_weight", torch::zeros({bag_width, width}),
                                   {.init = Init::normal(std), .decay = Decay::matrices});
}

torch::Tensor RegionTableImpl::forward(const Batch& batch, const torch::Tensor& u_bcm) const {
  return region_vectors(rows_bcp(batch), weight(), bias(), {u_bcm, bag_weight_md_});
}

torch::Tensor RegionTableImpl::greatest(const Batch& batch, const torch::Tensor& u_bcm) const {
  auto rows_lcp = rows_bcp(batch);
  auto u_lcm = u_bcm;
  if (batch.is_packed()) {
    rows_lcp = rows_of_texts(rows_lcp, batch).masked_fill(tokens_of_texts_lc(batch).logical_not().unsqueeze(2), -1);
    if (u_bcm.defined()) u_lcm = rows_of_texts(u_bcm, batch);
  }
  return greatest_region_vectors(rows_lcp, weight(), bias(), {u_lcm, bag_weight_md_});
}

RegionEmbeddingImpl::RegionEmbeddingImpl(const RegionConfig& config, std::int64_t vocabulary, std::int64_t width,
                                         double std) {
  if (const auto* bag = std::get_if<BagRegionConfig>(&config)) {
    bag_ = register_module("bag", RegionBag(bag->size, vocabulary, width, std));
    return;
  }
  const auto& regions = std::get<SequenceRegionConfig>(config);
  if (regions.bag.width > 0)
    bag_ = register_module("bag", RegionBag(regions.bag.size, vocabulary, regions.bag.width, std));
  for (auto size = regions.shortest; size <= regions.longest; ++size)
    tables_.push_back(register_module(std::to_string(size),
                                      RegionTable(size, vocabulary, width / regions.sizes(), regions.bag.width, std)));
}

torch::Tensor RegionEmbeddingImpl::bag_vectors(const Batch& batch) const {
  return bag_.is_empty() ? torch::Tensor() : bag_->forward(batch);
}

torch::Tensor RegionEmbeddingImpl::forward(const Batch& batch) const {
  const auto u_bcm = bag_vectors(batch);
  if (tables_.empty()) return u_bcm;
  std::vector<torch::Tensor> vectors;
  for (const auto& table : tables_) vectors.push_back(table->forward(batch, u_bcm));
  return torch::cat(vectors, 2);
}

std::vector<torch::Tensor> RegionEmbeddingImpl::greatest(const Batch& batch) const {
  const auto u_bcm = bag_vectors(batch);
  if (tables_.empty()) return {greatest_over_tokens(u_bcm, batch)};
  std::vector<torch::Tensor> all;
  for (const auto& table : tables_) all.push_back(table->greatest(batch, u_bcm));
  return all;
}

}  // namespace metaformer
