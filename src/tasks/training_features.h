#pragma once
// The training split as sets of features: what naive Bayes counts and a linear model is fitted to.

#include <functional>

#include "tasks/batch_stream.h"
#include "text/log_count_ratios.h"

namespace metaformer {

// The distinct features of each row of a batch.
using RowFeatures = std::function<std::vector<std::vector<std::uint32_t>>(const Batch& batch)>;

// Of the training texts as evaluation sees them: cut to the context, without noise. Throws Interrupted when a signal
// asks to stop.
std::vector<LabelledFeatures> training_features(const BatchStream& stream, const RowFeatures& row_features);

}  // namespace metaformer
