#include "infer/prediction.h"

#include <algorithm>

#include "infer/finite_answers.h"
#include "ops/autocast.h"
#include "tasks/batches.h"

namespace metaformer {

std::vector<Prediction> predict(const LoadedRun& run, const std::vector<std::vector<std::int32_t>>& texts) {
  const torch::NoGradGuard no_grad;
  const auto& config = run.experiment.config;
  const AutocastScope autocast(config.train.precision, run.device);
  const auto batch = to_batch(pad_rows({texts.begin(), texts.end()}), run.device, context_of(config.model));
  const auto logits_bv = widened(run.predictor->logits(batch));
  const auto probability_bv = torch::softmax(logits_bv.to(torch::kDouble), 1).to(torch::kCPU).contiguous();
  const auto unanswered = probability_bv.isfinite().all(1).logical_not().sum().item<std::int64_t>();
  require_finite_answers(unanswered, std::ssize(texts));
  const auto classes = probability_bv.size(1);
  std::vector<Prediction> predictions;
  for (std::int64_t row = 0; row < probability_bv.size(0); ++row) {
    const auto* first = probability_bv.data_ptr<double>() + row * classes;
    const auto likeliest = std::max_element(first, first + classes) - first;
    predictions.push_back({static_cast<std::size_t>(likeliest), {first, first + classes}});
  }
  return predictions;
}

}  // namespace metaformer
