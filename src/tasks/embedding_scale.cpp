#include "tasks/embedding_scale.h"

#include <algorithm>
#include <cmath>

#include "base/signals.h"
#include "model/embedding.h"

namespace metaformer {

std::vector<LabelledFeatures> training_features(const BatchStream& stream, const RowFeatures& row_features) {
  std::vector<LabelledFeatures> texts;
  const auto batches = stream.evaluation_batches(Split::train);
  for (std::int64_t i = 0; i < batches; ++i) {
    throw_if_stopped();
    const auto batch = stream.evaluation_batch(Split::train, i, torch::kCPU);
    auto rows = row_features(batch);
    const auto* labels = batch.labels_l.data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row].shrink_to_fit();
      texts.push_back({.features = std::move(rows[row]), .label = labels[row]});
    }
  }
  return texts;
}

namespace {

// Features are token ids, a class token's too, and behind these the buckets of n-grams: what the model looks up.
class TextFeatures {
 public:
  TextFeatures(const Classifier& model, std::int64_t vocabulary)
      : model_(model),
        ngrams_(model.config().embedding.ngrams),
        tokens_(vocabulary + (is<FirstTokenHeadConfig>(model.head()) ? 1 : 0)) {}

  std::int64_t buckets() const { return ngrams_.order > 1 ? ngrams_.buckets : 0; }
  std::int64_t first_bucket() const { return tokens_; }

  std::vector<std::vector<std::uint32_t>> operator()(const Batch& given) const {
    const auto batch = model_.embedded(given);
    std::vector<torch::Tensor> kinds = {batch.ids_bc};
    for (std::int64_t n = 2; n <= ngrams_.order; ++n)
      kinds.push_back(ngram_buckets(batch.ids_bc, n, ngrams_.buckets) + first_bucket());
    std::vector<std::vector<std::uint32_t>> rows(static_cast<std::size_t>(batch.ids_bc.size(0)));
    for (std::size_t row = 0; row < rows.size(); ++row) {
      auto& features = rows[row];
      for (const auto& kind_bc : kinds) append_row(kind_bc, batch, static_cast<std::int64_t>(row), features);
      std::sort(features.begin(), features.end());
      features.erase(std::unique(features.begin(), features.end()), features.end());
    }
    return rows;
  }

 private:
  static void append_row(const torch::Tensor& kind_bc, const Batch& batch, std::int64_t row,
                         std::vector<std::uint32_t>& features) {
    const auto kind_c = kind_bc[row];
    const auto real_c =
        batch.segments_bc.defined() ? kind_c.masked_select(batch.segments_bc[row] >= 0) : kind_c.contiguous();
    const auto* values = real_c.data_ptr<std::int64_t>();
    features.insert(features.end(), values, values + real_c.numel());
  }

  const Classifier& model_;
  NgramEmbeddingConfig ngrams_;
  std::int64_t tokens_;
};

}  // namespace

// Of features 0 ... size - 1, how unequally the classes have them: |r|, of more than two classes the largest.
static torch::Tensor log_count_scale(const std::vector<LabelledFeatures>& texts, std::int64_t classes,
                                     std::int64_t size) {
  std::vector<float> scale(static_cast<std::size_t>(size));
  for (std::int64_t label = 0; label < (classes == 2 ? 1 : classes); ++label) {
    const auto ratios = log_count_ratios(texts, label, scale.size());
    for (std::size_t i = 0; i < scale.size(); ++i)
      scale[i] = std::max(scale[i], static_cast<float>(std::abs(ratios[i])));
  }
  return torch::tensor(scale);
}

void scale_by_log_count_ratios(Classifier& model, const BatchStream& stream, const ModelSizes& sizes) {
  const auto [vocabulary, classes] = sizes;
  const TextFeatures features(model, vocabulary);
  const auto all =
      log_count_scale(training_features(stream, features), classes, features.first_bucket() + features.buckets());
  // A class token stands in every text: it says nothing of a class, and keeps its embedding.
  model.transformer()->scale_embeddings(all.narrow(0, 0, vocabulary),
                                        all.narrow(0, features.first_bucket(), features.buckets()));
}

void scale_bag_by_log_count_ratios(NgramBag& bag, const BatchStream& stream, std::int64_t classes) {
  const auto buckets_of_rows = [&](const Batch& batch) {
    const auto buckets_lf = bag->buckets_lf(batch).to(torch::kInt).contiguous();
    std::vector<std::vector<std::uint32_t>> rows;
    for (std::int64_t row = 0; row < buckets_lf.size(0); ++row) {
      auto& buckets = rows.emplace_back();
      const auto* values = buckets_lf.const_data_ptr<std::int32_t>() + row * buckets_lf.size(1);
      for (std::int64_t i = 0; i < buckets_lf.size(1); ++i)
        if (values[i] >= 0) buckets.push_back(static_cast<std::uint32_t>(values[i]));
    }
    return rows;
  };
  bag->set_scale(log_count_scale(training_features(stream, buckets_of_rows), classes, bag->buckets()));
}

}  // namespace metaformer
