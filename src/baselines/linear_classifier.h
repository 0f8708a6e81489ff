#pragma once
// Logistic regression over the n-grams that a text has: the baseline that networks must beat (Wang and Manning 2012,
// "Baselines and bigrams").

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "text/log_count_ratios.h"

namespace metaformer {

// logit of a class = bias + the sum of its weights of a text's features.
struct LinearWeights {
  std::int64_t classes = 0;
  std::vector<float> weights;  // row-major [buckets, classes]
  std::vector<float> bias;     // [classes]

  std::vector<double> logits(const std::vector<std::uint32_t>& features) const;
};

// Minimises |w|^2 / 2 + cost * sum of log(1 + exp(-y w.x)), the bias a part of w, with x the features' log-count ratios
// (naive_bayes) or 1: for two classes once, its log odds shared between them; for more, every class against the rest.
// The ratios are multiplied into the weights that come back. A class that has no text, or all, is predicted
// by its bias only. The same on every call with the same texts; not for several threads at once. Throws Interrupted
// when a signal asks to stop.
LinearWeights fit_linear_classifier(const std::vector<LabelledFeatures>& texts, std::int64_t classes,
                                    const LinearConfig& config);

}  // namespace metaformer
