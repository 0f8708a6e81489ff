#include "model/classifier.h"

#include "base/error.h"

namespace metaformer {

namespace {

// Mean over the real tokens of each row, [b, d], in float32 at least; zeros where there are none.
torch::Tensor mean_over_tokens(const torch::Tensor& given_bcd, const torch::Tensor& segments_bc) {
  const auto y_bcd = given_bcd.to(given_bcd.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
  if (!segments_bc.defined()) return y_bcd.mean(1);
  const auto real_bc1 = (segments_bc >= 0).unsqueeze(2);
  return y_bcd.masked_fill(real_bc1.logical_not(), 0).sum(1) / real_bc1.sum(1).clamp_min(1);
}

ModelConfig trunk_config(ModelConfig config) {
  if (config.head == ClassifierHead::first_token) ++config.context;
  return config;
}

}  // namespace

Classifier::Classifier(const ModelConfig& config, std::int64_t vocabulary, std::int64_t classes)
    : config_(config),
      class_token_(vocabulary),
      head_(register_module("head", torch::nn::Linear(config.width, classes))) {
  const auto tokens = config.head == ClassifierHead::first_token ? vocabulary + 1 : vocabulary;
  transformer_ = register_module("transformer", Transformer(trunk_config(config), tokens, /*causal=*/false));
  if (config.head == ClassifierHead::mean_pooled)
    pooled_norm_ = register_module("pooled_norm", LayerNorm(config.width, config.bias));
  if (config.recalibrate) logit_shift_v_ = register_buffer("logit_shift", torch::zeros(classes));
}

void Classifier::set_logit_shift(const torch::Tensor& shift_v) {
  const torch::NoGradGuard no_grad;
  logit_shift_v_.copy_(shift_v);
}

torch::Tensor Classifier::forward(const Batch& batch, ModelState* state) {
  if (state != nullptr) throw Error(ExitCode::failure, "a classifier has no state to continue from");
  const auto logits_bv = logits_of(batch);
  return logit_shift_v_.defined() && !is_training() ? logits_bv + logit_shift_v_ : logits_bv;
}

torch::Tensor Classifier::logits_of(const Batch& batch) {
  switch (config_.head) {
    case ClassifierHead::per_token_mean:
      return mean_over_tokens(head_(transformer_->forward(batch, nullptr)), batch.segments_bc);
    case ClassifierHead::mean_pooled:
      return head_(pooled_norm_(mean_over_tokens(transformer_->forward(batch, nullptr), batch.segments_bc)));
    case ClassifierHead::first_token:
      break;
  }
  return head_(transformer_->forward(embedded(batch), nullptr).select(1, 0));
}

Batch Classifier::embedded(const Batch& batch) const {
  if (config_.head != ClassifierHead::first_token) return batch;
  TORCH_CHECK(!batch.positions_bc.defined(), "a class token has no position of its own among given ones");
  Batch longer = batch;
  const auto before = batch.ids_bc.narrow(1, 0, 1);
  longer.ids_bc = torch::cat({torch::full_like(before, class_token_), batch.ids_bc}, 1);
  if (batch.segments_bc.defined()) longer.segments_bc = torch::cat({torch::zeros_like(before), batch.segments_bc}, 1);
  return longer;
}

}  // namespace metaformer
