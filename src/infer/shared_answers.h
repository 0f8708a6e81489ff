#pragma once
// Predictions that several processes take turns in.

#include "distributed/process_group.h"
#include "infer/prediction.h"

namespace metaformer {

// Texts of one forward pass, as token ids.
using TextBatch = std::vector<std::vector<std::int32_t>>;

// On the first process, as predict() gives them: batch by batch, of at most as many batches as there are processes,
// whose texts only this one has read. The others must be in help_predict.
std::vector<std::vector<Prediction>> predict_together(ProcessGroup& group, const LoadedRun& run,
                                                      const std::vector<TextBatch>& batches);

// On the others: computes their share until the first calls end_predictions.
void help_predict(ProcessGroup& group, const LoadedRun& run);
void end_predictions(ProcessGroup& group);

}  // namespace metaformer
