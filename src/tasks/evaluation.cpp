#include "tasks/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "base/signals.h"
#include "ops/autocast.h"
#include "tasks/evaluation_line.h"

namespace metaformer {

namespace {

template <class MakeBatch>
ScoreSums score_batches(const Predictor& predictor, const Task& task, std::string_view what, std::int64_t batches,
                        Precision precision, torch::Device device, MakeBatch make_batch) {
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision, device);
  ScoreSums sums;
  EvaluationLine line(what, batches);
  for (std::int64_t i = 0; i < batches; ++i) {
    stop_point("evaluate");
    throw_if_stopped();
    line.show(i + 1);
    const auto batch = make_batch(i);
    task.metrics->score(predictor.logits(batch), batch, sums);
  }
  return sums;
}

}  // namespace

ScoreSums score_split(const Predictor& predictor, const Task& task, Split split, Precision precision,
                      torch::Device device) {
  return score_batches(predictor, task, fmt::format("the {} split", to_string(split)),
                       task.batches->evaluation_batches(split), precision, device,
                       [&](std::int64_t i) { return task.batches->evaluation_batch(split, i, device); });
}

nlohmann::ordered_json evaluate_split(const Predictor& predictor, const Task& task, Split split, Precision precision,
                                      torch::Device device) {
  return task.metrics->report(score_split(predictor, task, split, precision, device), task.batches->source_of(split));
}

nlohmann::ordered_json estimate_split(const Predictor& predictor, const Task& task, Split split, std::int64_t batches,
                                      Precision precision, torch::Device device) {
  const auto sums =
      score_batches(predictor, task, fmt::format("random batches of the {} split", to_string(split)), batches,
                    precision, device, [&](std::int64_t i) { return task.batches->random_batch(split, i, device); });
  return task.metrics->report(sums, task.batches->source_of(split));
}

std::string headline_of(const Task& task, const nlohmann::ordered_json& metrics) {
  auto text = fmt::format("loss {:.4f}", metrics.at("loss").get<double>());
  for (auto& name : task.metrics->headline()) {
    if (!metrics.contains(name)) continue;
    const double share = metrics[name];
    std::replace(name.begin(), name.end(), '_', ' ');
    text += fmt::format(", {} {:.2f}%", name, 100 * share);
  }
  return text;
}

}  // namespace metaformer
