#pragma once
// Classes of texts from a classifier.

#include "config/train_config.h"
#include "model/sequence_model.h"

namespace metaformer {

struct Prediction {
  std::size_t label = 0;              // the likeliest class
  std::vector<double> probabilities;  // by class
};

// One prediction per text, in order; its last digits depend on the texts beside it. `precision`: that of the run, in
// which it is evaluated too. `texts`: token ids, none empty, none longer than the model's context. Errors (exit code
// 4): a probability is not finite.
std::vector<Prediction> predict(SequenceModel& model, const std::vector<std::vector<std::int32_t>>& texts,
                                Precision precision, torch::Device device);

}  // namespace metaformer
