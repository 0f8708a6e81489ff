#pragma once
// A task, composed of its parts. The trainer knows these interfaces, not corpora or models.

#include <memory>

#include "tasks/batch_stream.h"
#include "tasks/metrics.h"
#include "tasks/model_adaptation.h"
#include "tasks/objective.h"
#include "tasks/task_data.h"

namespace metaformer {

// None of them is null.
struct Task {
  std::shared_ptr<const TaskData> data;
  std::shared_ptr<const BatchStream> batches;
  std::shared_ptr<const Objective> objective;
  std::shared_ptr<const Metrics> metrics;
  std::shared_ptr<const ModelAdaptation> adaptation = std::make_shared<ModelAdaptation>();
};

}  // namespace metaformer
