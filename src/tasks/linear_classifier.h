#pragma once
// The linear baseline over n-grams.

#include <cstdint>
#include <functional>
#include <vector>

#include "config/model_config.h"
#include "ops/named_tensors.h"
#include "tasks/task.h"
#include "text/ngram_features.h"

namespace metaformer {

// Logistic regression over the n-grams that a text has: the baseline that networks must beat (Wang and Manning 2012,
// "Baselines and bigrams").
// logit of a class = bias + the sum of its weights of a text's features.
struct LinearWeights {
  std::int64_t classes = 0;
  std::vector<float> weights;  // row-major [buckets, classes]
  std::vector<float> bias;     // [classes]

  std::vector<double> logits(const std::vector<std::uint32_t>& features) const;
};

// Minimises |w|^2 / 2 + cost * sum of log(1 + exp(-y w.x)), where the bias is a part of w, and x has the features'
// log-count ratios (naive_bayes) or 1. For two classes this is done once, and the log odds are shared between them; for
// more, for every class against the rest. The ratios are multiplied into the returned weights. A class without texts,
// or with all of them, is predicted by its bias only. The same texts give the same result; not thread-safe. Throws
// Interrupted if a signal asks to stop.
LinearWeights fit_linear_classifier(const std::vector<LabelledFeatures>& texts, std::int64_t classes,
                                    const LinearConfig& config);

// The distinct features of each row of a batch.
using RowFeatures = std::function<std::vector<std::vector<std::uint32_t>>(const Batch& batch)>;

// Features of the training texts as evaluation sees them: cut to the context, without noise. Throws Interrupted when a
// signal asks to stop.
std::vector<LabelledFeatures> training_features(const BatchStream& stream, const RowFeatures& row_features);

// The features of each row of a batch: those of its real tokens (segment >= 0).
std::vector<std::vector<std::uint32_t>> row_features(const Batch& batch, const LinearConfig& config);

class LinearModel : public Predictor {
 public:
  LinearModel(const LinearConfig& config, const LinearWeights& weights);

  // Without values; those of a checkpoint are to be copied into tensors().
  LinearModel(const LinearConfig& config, std::int64_t classes);

  // Logits [b, classes]: the bias and the sum of the weights of the features of each row. A row's logits do not depend
  // on the others.
  torch::Tensor logits(const Batch& batch) const override;

  void to(torch::Device device);

  // "weight" [buckets, classes] and "bias" [classes], which alias the model.
  NamedTensors tensors() const { return {{"weight", weight_fv_}, {"bias", bias_v_}}; }
  std::int64_t parameters() const { return weight_fv_.numel() + bias_v_.numel(); }

 private:
  LinearConfig config_;
  torch::Tensor weight_fv_, bias_v_;
};

}  // namespace metaformer
