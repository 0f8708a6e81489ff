#include "compare/prediction_tests.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "run/test_predictions.h"

namespace metaformer {

namespace {

std::optional<TestPredictions> predictions_of(const RunRecord& run, std::string& problem) {
  if (run.folder.empty()) {
    problem = fmt::format("{} is a row of a results file, which has no predictions", run.source);
    return std::nullopt;
  }
  auto predictions = read_test_predictions(RunDirectory::open(run.folder));
  if (!predictions) problem = fmt::format("{} has no test_predictions.safetensors", run.source);
  return predictions;
}

// Whether each text's likeliest class is its own; of equal ones the first.
torch::Tensor correct(const TestPredictions& predictions) {
  return predictions.probabilities_lv.argmax(1) == predictions.labels_l;
}

}  // namespace

std::optional<McNemarTest> compare_predictions(const RunRecord& reference, const RunRecord& run, std::string& problem) {
  const auto theirs = predictions_of(reference, problem);
  const auto ours = theirs ? predictions_of(run, problem) : std::nullopt;
  if (!ours) return std::nullopt;
  if (!ours->labels_l.equal(theirs->labels_l)) {
    problem = fmt::format("{} and {} have different test texts", reference.source, run.source);
    return std::nullopt;
  }
  const auto right_l = correct(*ours), their_right_l = correct(*theirs);
  return mcnemar(run.seed, (their_right_l & ~right_l).sum().item<std::int64_t>(),
                 (right_l & ~their_right_l).sum().item<std::int64_t>());
}

}  // namespace metaformer
