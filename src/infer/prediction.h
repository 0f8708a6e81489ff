#pragma once
// Classes of texts from a classifier.

#include "infer/load_run.h"

namespace metaformer {

struct Prediction {
  std::size_t label = 0;              // the likeliest class
  std::vector<double> probabilities;  // by class
};

// One prediction per text, in order, in the precision of the run; the last digits of a network's depend on the texts
// beside it. `texts`: token ids, none empty, none longer than model.context. Errors (exit code 4): a probability is not
// finite.
std::vector<Prediction> predict(const LoadedRun& run, const std::vector<std::vector<std::int32_t>>& texts);

}  // namespace metaformer
