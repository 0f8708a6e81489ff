#include "infer/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "base/signals.h"
#include "infer/evaluation_line.h"
#include "ops/autocast.h"

namespace metaformer {

namespace {

template <class MakeBatch>
ScoreSums score_batches(SequenceModel& model, const Task& task, std::string_view what, std::int64_t batches,
                        Precision precision, torch::Device device, MakeBatch make_batch) {
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision, device);
  const bool was_training = model.is_training();
  model.eval();
  ScoreSums sums;
  EvaluationLine line(what, batches);
  for (std::int64_t i = 0; i < batches; ++i) {
    stop_point("evaluate");
    throw_if_stopped();
    line.show(i + 1);
    task.score(model, make_batch(i), sums);
  }
  model.train(was_training);
  return sums;
}

}  // namespace

ScoreSums score_split(SequenceModel& model, const Task& task, Split split, Precision precision, torch::Device device) {
  return score_batches(model, task, fmt::format("the {} split", to_string(split)), task.evaluation_batches(split),
                       precision, device, [&](std::int64_t i) { return task.evaluation_batch(split, i, device); });
}

nlohmann::ordered_json evaluate_split(SequenceModel& model, const Task& task, Split split, Precision precision,
                                      torch::Device device) {
  return task.metrics(score_split(model, task, split, precision, device), split);
}

nlohmann::ordered_json estimate_split(SequenceModel& model, const Task& task, Split split, std::int64_t batches,
                                      Precision precision, torch::Device device) {
  const auto sums =
      score_batches(model, task, fmt::format("random batches of the {} split", to_string(split)), batches, precision,
                    device, [&](std::int64_t i) { return task.random_batch(split, i, device); });
  return task.metrics(sums, split);
}

std::string headline_of(const Task& task, const nlohmann::ordered_json& metrics) {
  auto text = fmt::format("loss {:.4f}", metrics.at("loss").get<double>());
  for (auto& name : task.headline()) {
    if (!metrics.contains(name)) continue;
    const double share = metrics[name];
    std::replace(name.begin(), name.end(), '_', ' ');
    text += fmt::format(", {} {:.2f}%", name, 100 * share);
  }
  return text;
}

}  // namespace metaformer
