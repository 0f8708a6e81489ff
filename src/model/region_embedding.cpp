#include "model/region_embedding.h"

#include "model/labelled_texts.h"
#include "ops/region_vectors.h"
#include "ops/sparse_rows.h"

namespace metaformer {

namespace {

// For each token of a batch and place of its region the row of the table, place x vocabulary + id; -1 where nothing
// stands: before the segment, and in padding.
torch::Tensor region_rows_bcp(const Batch& batch, std::int64_t places, std::int64_t vocabulary) {
  const auto length = batch.ids_bc.size(1);
  std::vector<torch::Tensor> rows;
  for (std::int64_t place = 0; place < places; ++place) {
    const auto shifted = [&](const torch::Tensor& x_bc) {
      return torch::constant_pad_nd(x_bc, {place, 0}, -1).narrow(1, 0, length);
    };
    const auto ids_bc = shifted(batch.ids_bc);
    auto is_none_bc = ids_bc < 0;
    if (const auto& segments_bc = batch.segments_bc; segments_bc.defined())
      is_none_bc = is_none_bc | (segments_bc < 0) | (shifted(segments_bc) != segments_bc);
    rows.push_back((ids_bc + place * vocabulary).masked_fill(is_none_bc, -1));
  }
  return torch::stack(rows, 2).to(torch::kInt);
}

}  // namespace

RegionTableImpl::RegionTableImpl(std::int64_t places, std::int64_t vocabulary, std::int64_t width, double std)
    : places_(places),
      vocabulary_(vocabulary),
      gradient_rows_(places * vocabulary),
      weight_rd_(
          add_parameter("weight", torch::zeros({places * vocabulary, width}),
                        {.init = Init::normal(std), .decay = Decay::embeddings, .gradient_rows = &gradient_rows_})),
      bias_d_(add_parameter("bias", torch::zeros(width), {.init = Init::zeros()})) {
  list_gradient_rows(weight_rd_, gradient_rows_);
}

torch::Tensor RegionTableImpl::forward(const Batch& batch) const {
  return region_vectors(region_rows_bcp(batch, places_, vocabulary_), weight_rd_, bias_d_);
}

torch::Tensor RegionTableImpl::greatest(const Batch& batch) const {
  auto rows_lcp = region_rows_bcp(batch, places_, vocabulary_);
  if (batch.is_packed())
    rows_lcp = rows_of_texts(rows_lcp, batch).masked_fill(tokens_of_texts_lc(batch).logical_not().unsqueeze(2), -1);
  return greatest_region_vectors(rows_lcp, weight_rd_, bias_d_);
}

RegionEmbeddingImpl::RegionEmbeddingImpl(const SequenceRegionConfig& config, std::int64_t vocabulary,
                                         std::int64_t width, double std) {
  for (auto size = config.shortest; size <= config.longest; ++size)
    tables_.push_back(
        register_module(std::to_string(size), RegionTable(size, vocabulary, width / config.sizes(), std)));
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

}  // namespace metaformer
