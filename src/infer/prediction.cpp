#include "infer/prediction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "infer/sampling.h"
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

void Ensemble::add(const std::string& name, const ClassificationMetrics& metrics, const ScoreSums& sums, Split split) {
  auto member = metrics.probabilities_of(sums, split);
  if (members_++ == 0) {
    classes_ = metrics.labels();
    text_digest_ = metrics.text_digest(split);
    sum_ = std::move(member);
    return;
  }
  if (metrics.labels() != classes_)
    throw Error(ExitCode::usage, fmt::format("{}: its classes are {}, those of the first run are {}", name,
                                             fmt::join(metrics.labels(), ", "), fmt::join(classes_, ", ")));
  if (metrics.text_digest(split) != text_digest_ || member.labels != sum_.labels)
    throw Error(ExitCode::usage,
                fmt::format("{}: its {} split has other texts than the first run's ({} and {}); an ensemble needs runs "
                            "of the same data and data.validation_fraction",
                            name, to_string(split), member.texts(), sum_.texts()));
  for (std::size_t i = 0; i < sum_.values.size(); ++i) sum_.values[i] += member.values[i];
}

ClassProbabilities Ensemble::mean() const {
  auto mean = sum_;
  for (auto& value : mean.values) value /= members_;
  return mean;
}

}  // namespace metaformer
