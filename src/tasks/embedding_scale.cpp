#include "tasks/embedding_scale.h"

#include <algorithm>
#include <cmath>
#include <iterator>

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

// The distinct features of every row; -1: none.
std::vector<std::vector<std::uint32_t>> distinct_in_rows(const torch::Tensor& features_lf) {
  const auto contiguous_lf = features_lf.to(torch::kLong).contiguous();
  const auto width = contiguous_lf.size(1);
  std::vector<std::vector<std::uint32_t>> rows;
  for (std::int64_t row = 0; row < contiguous_lf.size(0); ++row) {
    const auto* values = contiguous_lf.const_data_ptr<std::int64_t>() + row * width;
    auto& features = rows.emplace_back();
    std::copy_if(values, values + width, std::back_inserter(features), [](auto value) { return value >= 0; });
    std::sort(features.begin(), features.end());
    features.erase(std::unique(features.begin(), features.end()), features.end());
  }
  return rows;
}

// Of features 0 ... size - 1, how unequally the classes have them: |r|, of more than two classes the largest.
torch::Tensor log_count_scale(const std::vector<LabelledFeatures>& texts, std::int64_t classes, std::int64_t size) {
  std::vector<float> scale(static_cast<std::size_t>(size));
  for (std::int64_t label = 0; label < (classes == 2 ? 1 : classes); ++label) {
    const auto ratios = log_count_ratios(texts, label, scale.size());
    for (std::size_t i = 0; i < scale.size(); ++i)
      scale[i] = std::max(scale[i], static_cast<float>(std::abs(ratios[i])));
  }
  return torch::tensor(scale);
}

}  // namespace

void scale_by_log_count_ratios(Classifier& model, const BatchStream& stream, const ModelSizes& sizes) {
  const auto [vocabulary, classes] = sizes;
  const auto& ngrams = model.config().embedding.ngrams;
  const auto buckets = ngrams.order > 1 ? ngrams.buckets : 0;
  // Features are token ids, a class token's too, and behind these the buckets of n-grams: what the model looks up.
  const auto first_bucket = vocabulary + (is<FirstTokenHeadConfig>(model.head()) ? 1 : 0);
  const auto features_of_rows = [&](const Batch& given) {
    const auto batch = model.embedded(given);
    std::vector<torch::Tensor> kinds = {batch.ids_bc};
    for (std::int64_t n = 2; n <= ngrams.order; ++n)
      kinds.push_back(ngram_buckets(batch.ids_bc, n, ngrams.buckets) + first_bucket);
    if (batch.segments_bc.defined())
      for (auto& kind_bc : kinds) kind_bc = kind_bc.masked_fill(batch.segments_bc < 0, -1);
    return distinct_in_rows(torch::cat(kinds, 1));
  };
  const auto all = log_count_scale(training_features(stream, features_of_rows), classes, first_bucket + buckets);
  // A class token stands in every text: it says nothing of a class, and keeps its embedding.
  model.transformer()->scale_embeddings(all.narrow(0, 0, vocabulary), all.narrow(0, first_bucket, buckets));
}

void scale_bag_by_log_count_ratios(NgramBag& bag, const BatchStream& stream, std::int64_t classes) {
  const auto buckets_of_rows = [&](const Batch& batch) { return distinct_in_rows(bag->buckets_lf(batch)); };
  bag->set_scale(log_count_scale(training_features(stream, buckets_of_rows), classes, bag->buckets()));
}

}  // namespace metaformer
