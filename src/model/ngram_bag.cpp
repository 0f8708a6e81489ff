#include "model/ngram_bag.h"

#include "model/labelled_texts.h"
#include "model/ngram_buckets.h"
#include "ops/sparse_rows.h"

namespace metaformer {

NgramBagImpl::NgramBagImpl(const NaiveBayesBagConfig& config)
    : config_(config),
      gradient_rows_(config.buckets),
      weight_gu_(add_parameter("weight", torch::zeros({config.buckets, config.units}),
                               {.init = Init::normal(), .decay = Decay::embeddings, .gradient_rows = &gradient_rows_})),
      bias_u_(add_parameter("bias", torch::zeros(config.units), {.init = Init::zeros()})),
      scale_g_(register_buffer("scale", torch::ones(config.buckets))) {
  list_gradient_rows(weight_gu_, gradient_rows_);
}

void NgramBagImpl::set_scale(const torch::Tensor& scale_g) {
  const torch::NoGradGuard no_grad;
  scale_g_.copy_(scale_g);
}

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

}  // namespace metaformer
