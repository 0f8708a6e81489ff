#pragma once
// A hidden layer over the n-grams of a text in any order, each scaled by how unequally the classes have it (Wang and
// Manning 2012; Johnson and Zhang 2015, section 3.3).

#include "config/classification_config.h"
#include "model/batch.h"
#include "ops/layer.h"

namespace metaformer {

// max(0, b + the sum of |r_g| W_g over the buckets g that the text's n-grams are hashed to). Whether a text has an
// n-gram counts, not how often. |r_g| is 1 until set.
class NgramBagImpl : public Layer {
 public:
  explicit NgramBagImpl(const NaiveBayesBagConfig& config);

  torch::Tensor forward(const Batch& batch);  // [l, units], of every labelled text

  // The buckets that each labelled text has, each once: [l, f]; -1 where there are no more.
  torch::Tensor buckets_lf(const Batch& batch) const;

  std::int64_t buckets() const { return config_.buckets; }
  void set_scale(const torch::Tensor& scale_g);

 private:
  NaiveBayesBagConfig config_;
  GradientRows gradient_rows_;
  torch::Tensor weight_gu_, bias_u_, scale_g_;
};
TORCH_MODULE(NgramBag);

}  // namespace metaformer
