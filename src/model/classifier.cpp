#include "model/classifier.h"

#include <torch/nn/functional/embedding.h>

#include <limits>

#include "base/error.h"
#include "model/batch.h"
#include "model/embedding.h"
#include "ops/dropout.h"

namespace metaformer {

NgramBagImpl::NgramBagImpl(const NaiveBayesBagConfig& config)
    : config_(config),
      gradient_rows_(config.buckets),
      weight_gu_(add_parameter("weight", {config.buckets, config.units},
                               {.init = Init::normal(), .decay = Decay::embeddings, .gradient_rows = &gradient_rows_})),
      bias_u_(add_parameter("bias", config.units, {.init = Init::zeros()})),
      scale_g_(register_buffer("scale", torch::ones(config.buckets, module_device()))) {}

torch::Tensor NgramBagImpl::buckets_lf(const Batch& batch) const {
  const auto segments_bc = batch.has_own_positions() ? batch.segments_bc : torch::Tensor();
  std::vector<torch::Tensor> of_order;
  for (std::int64_t n = 1; n <= config_.ngrams; ++n) {
    auto buckets_lc = rows_of_texts(ngram_buckets(batch.ids_bc, n, config_.buckets, segments_bc), batch);
    if (batch.segments_bc.defined()) buckets_lc = buckets_lc.masked_fill(tokens_of_texts_lc(batch).logical_not(), -1);
    of_order.push_back(buckets_lc);
  }
  const auto sorted_lf = std::get<0>(torch::cat(of_order, 1).sort(1));
  const auto before_lf = torch::constant_pad_nd(sorted_lf, {1, 0}, -1).narrow(1, 0, sorted_lf.size(1));
  return sorted_lf.masked_fill(sorted_lf == before_lf, -1);
}

torch::Tensor NgramBagImpl::forward(const Batch& batch) {
  const auto buckets_lf = this->buckets_lf(batch), used_lf = buckets_lf.clamp_min(0);
  const auto scale_lf = torch::take(scale_g_, used_lf).masked_fill(buckets_lf < 0, 0);
  namespace F = torch::nn::functional;
  const auto bag_lu = F::embedding_bag(
      used_lf, weight_gu_,
      F::EmbeddingBagFuncOptions().mode(torch::kSum).sparse(weight_gu_.is_cpu()).per_sample_weights(scale_lf));
  return (bag_lu + bias_u_).relu();
}

namespace {

// The batch with the class token before every segment. Rows grow by the largest number of segments in a row.
Batch with_class_tokens(const Batch& batch, std::int64_t class_token) {
  const auto starts_bc = segment_starts(batch.segments_bc);
  const auto place_bc = torch::arange(starts_bc.size(1), batch.ids_bc.options()) + starts_bc.cumsum(1);
  const auto rows = starts_bc.size(0), length = starts_bc.size(1) + starts_bc.sum(1).max().item<std::int64_t>();
  const auto moved = [&](const torch::Tensor& x_bc, std::int64_t filler) {
    return torch::full({rows, length}, filler, x_bc.options()).scatter_(1, place_bc, x_bc);
  };
  Batch longer = batch;
  longer.ids_bc = moved(batch.ids_bc, 0);
  longer.segments_bc = moved(batch.segments_bc, -1);
  const auto row_s = starts_bc.nonzero().select(1, 0), place_s = place_bc.masked_select(starts_bc) - 1;
  longer.ids_bc.index_put_({row_s, place_s}, torch::full_like(row_s, class_token));
  longer.segments_bc.index_put_({row_s, place_s}, batch.segments_bc.masked_select(starts_bc));
  return longer;
}

torch::Tensor widened(const torch::Tensor& x) {
  return x.to(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

// The mean over each text's tokens, [l, d], in float32 at least; zeros for a text without tokens.
torch::Tensor mean_over_tokens(const torch::Tensor& x_bcd, const Batch& batch) {
  const auto x_lcd = rows_of_texts(widened(x_bcd), batch);
  if (!batch.segments_bc.defined()) return x_lcd.mean(1);
  const auto is_own_lc1 = tokens_of_texts_lc(batch).unsqueeze(2);
  return x_lcd.masked_fill(is_own_lc1.logical_not(), 0).sum(1) / is_own_lc1.sum(1).clamp_min(1);
}

// The greatest value of each feature over each text's tokens, likewise.
torch::Tensor greatest_over_tokens(const torch::Tensor& x_bcd, const Batch& batch) {
  const auto x_lcd = rows_of_texts(widened(x_bcd), batch);
  if (!batch.segments_bc.defined()) return std::get<0>(x_lcd.max(1));
  const auto is_own_lc1 = tokens_of_texts_lc(batch).unsqueeze(2);
  const auto greatest_ld =
      std::get<0>(x_lcd.masked_fill(is_own_lc1.logical_not(), -std::numeric_limits<double>::infinity()).max(1));
  return greatest_ld.masked_fill(is_own_lc1.any(1).logical_not(), 0);
}

// The vector of the first token of each text, [l, d].
torch::Tensor first_vectors(const torch::Tensor& x_bcd, const Batch& batch) {
  if (!batch.is_packed()) return x_bcd.select(1, 0);
  const auto is_own_lc = tokens_of_texts_lc(batch);
  const auto length = is_own_lc.size(1);
  const auto place_lc = torch::where(is_own_lc, torch::arange(length, batch.ids_bc.options()), length);
  return x_bcd.index({batch.label_rows_l2.select(1, 0), place_lc.amin(1)});
}

// Response normalisation (Johnson and Zhang 2015): x / sqrt(1 + |x|^2), of the vectors of the last dimension.
torch::Tensor response_normalised(const torch::Tensor& x) {
  return x * (1 + x.square().sum(-1, /*keepdim=*/true)).rsqrt();
}

}  // namespace

Classifier::Classifier(const TransformerConfig& config, const HeadConfig& head, std::int64_t vocabulary,
                       std::int64_t classes)
    : config_(config), head_config_(head), class_token_(vocabulary) {
  const auto* bag = bag_options(head);
  head_ = register_module("head", Linear(config.width + (bag != nullptr ? bag->units : 0), classes, /*bias=*/true,
                                         Init::normal(), /*hidden_matrices=*/0));
  const std::int64_t class_tokens = is<FirstTokenHeadConfig>(head) ? 1 : 0;
  auto trunk = config;
  trunk.context += class_tokens;
  transformer_ = register_module("transformer", Transformer(trunk, vocabulary + class_tokens, /*causal=*/false));
  if (is<MeanPooledHeadConfig>(head))
    pooled_norm_ = register_module("pooled_norm", Norm(config.norm, config.width, config.bias));
  if (bag != nullptr) bag_ = register_module("bag", NgramBag(*bag));
  if (recalibrates(head)) logit_shift_v_ = register_buffer("logit_shift", torch::zeros(classes, module_device()));
}

torch::Tensor Classifier::forward(const Batch& batch, ModelState* state, Pass& pass) {
  if (state != nullptr) throw Error(ExitCode::failure, "a classifier has no state to continue from");
  const auto logits_bv = logits_of(batch, pass);
  return logit_shift_v_.defined() && !pass.training ? logits_bv + logit_shift_v_ : logits_bv;
}

torch::Tensor Classifier::logits_of(const Batch& batch, Pass& pass) {
  if (is<PerTokenMeanHeadConfig>(head_config_))
    return mean_over_tokens(head_(transformer_->forward(batch, nullptr, pass)), batch);
  if (is<MeanPooledHeadConfig>(head_config_))
    return head_(pooled_norm_(mean_over_tokens(transformer_->forward(batch, nullptr, pass), batch)));
  if (const auto* pooled = std::get_if<MaxPooledHeadConfig>(&head_config_)) return pooled_logits(*pooled, batch, pass);
  const auto longer = embedded(batch);
  return head_(first_vectors(transformer_->forward(longer, nullptr, pass), longer));
}

torch::Tensor Classifier::pooled_logits(const MaxPooledHeadConfig& head, const Batch& batch, Pass& pass) {
  auto features = greatest_features(batch, pass);
  if (!bag_.is_empty()) features.push_back(bag_(batch));
  if (head.response_norm)
    for (auto& features_ld : features) features_ld = response_normalised(features_ld);
  return head_(dropout_of_segments(torch::cat(features, 1), batch.label_rows_l2, head.dropout, pass));
}

std::vector<torch::Tensor> Classifier::greatest_features(const Batch& batch, Pass& pass) {
  auto& regions = transformer_->region_embedding();
  const bool reads_embeddings = config_.layers == 0 && !regions.is_empty();
  const bool drops = pass.training && (config_.dropout > 0 || config_.embedding.dropout > 0);
  if (reads_embeddings && !drops && pass.probe == nullptr) return regions->greatest(batch);
  const auto greatest_ld = greatest_over_tokens(transformer_->forward(batch, nullptr, pass), batch);
  if (!reads_embeddings) return {greatest_ld};
  return greatest_ld.chunk(regions->sizes(), 1);
}

Batch Classifier::embedded(const Batch& batch) const {
  if (!is<FirstTokenHeadConfig>(head_config_)) return batch;
  if (batch.is_packed()) return with_class_tokens(batch, class_token_);
  Batch longer = batch;
  const auto before = batch.ids_bc.narrow(1, 0, 1);
  longer.ids_bc = torch::cat({torch::full_like(before, class_token_), batch.ids_bc}, 1);
  if (batch.segments_bc.defined()) longer.segments_bc = torch::cat({torch::zeros_like(before), batch.segments_bc}, 1);
  return longer;
}

}  // namespace metaformer
