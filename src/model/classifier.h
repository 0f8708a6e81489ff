#pragma once
// Classifiers and their heads.

#include "config/data_config.h"
#include "model/batch.h"
#include "model/transformer.h"
#include "ops/layer.h"
#include "ops/linear.h"

namespace metaformer {

// A hidden layer over the n-grams of a text in any order, each scaled by how unequally the classes contain it (Wang and
// Manning 2012; Johnson and Zhang 2015, section 3.3): max(0, b + the sum of |r_g| W_g over the buckets g of the text's
// hashed n-grams). Each bucket counts once. |r_g| is 1 until set.
class NgramBagImpl : public Layer {
 public:
  explicit NgramBagImpl(const NaiveBayesBagConfig& config);

  torch::Tensor forward(const Batch& batch);  // [l, units], for every labelled text

  // The distinct buckets of each labelled text, [l, f]; other entries are -1.
  torch::Tensor buckets_lf(const Batch& batch) const;

  std::int64_t buckets() const { return config_.buckets; }
  void set_scale(const torch::Tensor& scale_g) {
    const torch::NoGradGuard no_grad;
    scale_g_.copy_(scale_g);
  }

 private:
  NaiveBayesBagConfig config_;
  GradientRows gradient_rows_;
  torch::Tensor weight_gu_, bias_u_, scale_g_;
};
TORCH_MODULE(NgramBag);

// A sequence classifier over the same blocks, without a causal mask.
// per_token_mean: the mean of the logits of every real token. mean_pooled: logits from the mean of the real tokens'
// vectors, after a norm of its own. first_token: logits from a class token that is put before the text (BERT, Devlin et
// al. 2019). max_pooled: logits from each feature's greatest value among the real tokens and, with a bag, from features
// of the text's n-grams (Johnson and Zhang 2015).
class Classifier : public SequenceModel {
 public:
  Classifier(const TransformerConfig& config, const HeadConfig& head, std::int64_t vocabulary, std::int64_t classes);

  // Logits [l, classes] of every labelled text: a row of the batch or, if texts are packed, a segment of one. Padding
  // (segment -1) is ignored. There is no state, because the whole text is needed at once.
  torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass) override;
  const TransformerConfig& config() const { return config_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.width; }

  Transformer& transformer() { return transformer_; }
  const HeadConfig& head() const { return head_config_; }
  NgramBag& bag() { return bag_; }  // empty: none

  // The batch that the transformer reads: with the class token (its id is the vocabulary) in front if the head reads
  // one.
  Batch embedded(const Batch& batch) const;

  // From now on adds shift_v to the logits of evaluation, not to those of training. Only for models that recalibrate.
  void set_logit_shift(const torch::Tensor& shift_v) {
    const torch::NoGradGuard no_grad;
    logit_shift_v_.copy_(shift_v);
  }

 private:
  torch::Tensor logits_of(const Batch& batch, Pass& pass);
  torch::Tensor pooled_logits(const MaxPooledHeadConfig& head, const Batch& batch, Pass& pass);
  // Each labelled text's features, [l, features]: one tensor for every size of regions if the head reads their
  // embeddings, otherwise one for all.
  std::vector<torch::Tensor> greatest_features(const Batch& batch, Pass& pass);

  TransformerConfig config_;
  HeadConfig head_config_;
  std::int64_t class_token_;
  Transformer transformer_{nullptr};
  Norm pooled_norm_{nullptr};  // mean_pooled only
  NgramBag bag_{nullptr};      // max_pooled only
  Linear head_{nullptr};
  torch::Tensor logit_shift_v_;  // recalibrate only
};

}  // namespace metaformer
