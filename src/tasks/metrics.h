#pragma once
// The metrics that a task reports.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/token_rows.h"
#include "model/batch.h"
#include "tasks/score_sums.h"

namespace metaformer {

class Metrics {
 public:
  virtual ~Metrics() = default;

  // Adds a model's logits for a batch.
  virtual void score(const torch::Tensor& logits, const Batch& batch, ScoreSums& sums) const = 0;

  // The metrics that apply: loss, perplexity, accuracy, ... `split`: of the data (BatchStream::source_of).
  virtual nlohmann::ordered_json report(const ScoreSums& sums, Split split) const = 0;

  // Tables that are too large to be logged at every evaluation: an object, empty where there are none.
  virtual nlohmann::ordered_json tables(const ScoreSums&) const { return nlohmann::ordered_json::object(); }

  // The best checkpoint has the lowest of these on the validation split.
  virtual double selection_error(const nlohmann::ordered_json& report) const { return report.at("loss"); }

  // Besides the loss, the metrics that people look at first, all of them fractions: "accuracy", "exact_match", ...
  virtual std::vector<std::string> headline() const { return {}; }
};

}  // namespace metaformer
