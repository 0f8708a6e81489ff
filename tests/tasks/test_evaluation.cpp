#include <cmath>

#include "tasks/evaluation.h"
#include "tasks/task_examples.h"

namespace metaformer {

TEST_CASE("whole-split evaluation is the mean over single predictions", "[training]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  const auto metrics = evaluate_split(parts.predictor(), parts.task, Split::validation, Precision::fp32, torch::kCPU);
  double sum = 0, correct = 0, count = 0;
  for (std::int64_t i = 0; i < parts.task.batches->evaluation_batches(Split::validation); ++i) {
    const auto batch = parts.task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
    for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row) {
      const auto logits = parts.model->evaluate(Batch{.ids_bc = batch.ids_bc.narrow(0, row, 1)})[0].to(torch::kDouble);
      for (std::int64_t c = 0; c < logits.size(0); ++c) {
        const auto target = batch.targets_bc[row][c].item<std::int64_t>();
        if (target < 0) continue;
        sum -= torch::log_softmax(logits[c], 0)[target].item<double>();
        correct += logits[c].argmax().item<std::int64_t>() == target;
        ++count;
      }
    }
  }
  CHECK(metrics["tokens"].get<double>() == count);
  CHECK(metrics["loss"].get<double>() == Approx(sum / count).epsilon(1e-6));
  CHECK(metrics["accuracy"].get<double>() == Approx(correct / count));
  CHECK(metrics["perplexity"].get<double>() == Approx(std::exp(sum / count)).epsilon(1e-6));
  CHECK(metrics["bits_per_character"].get<double>() == Approx(sum / count / std::log(2.0)).epsilon(1e-6));
  CHECK(metrics == evaluate_split(parts.predictor(), parts.task, Split::validation, Precision::fp32, torch::kCPU));
}

TEST_CASE("random estimates of every task are repeatable and near the whole split", "[sort][classification]") {
  const Workplace place;
  const bool sorts = GENERATE(true, false);
  Parts parts(place.experiment(sorts ? sorter() : classifier(place)));
  const auto estimate = [&] {
    return estimate_split(parts.predictor(), parts.task, Split::validation, 40, Precision::fp32, torch::kCPU);
  };
  const auto whole = evaluate_split(parts.predictor(), parts.task, Split::validation, Precision::fp32, torch::kCPU);
  CHECK(estimate() == estimate());
  CHECK(estimate()["loss"].get<double>() == Approx(whole["loss"].get<double>()).epsilon(0.05));
  CHECK(estimate()["loss"] != whole["loss"]);
}

}  // namespace metaformer
