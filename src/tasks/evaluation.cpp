#include "tasks/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "distributed/agreement.h"
#include "ops/autocast.h"
#include "tasks/evaluation_line.h"
#include "tasks/shared_scores.h"

namespace metaformer {

namespace {

// Every process has the same number of turns, so that all of them stop in the same one.
template <class MakeBatch>
ScoreSums score_batches(const Predictor& predictor, const Task& task, std::string_view what, std::int64_t batches,
                        Precision precision, torch::Device device, ProcessGroup& of_all, MakeBatch make_batch) {
  auto& group = predictor.remembers() ? one_process() : of_all;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision, device);
  std::vector<ScoreSums> own;
  EvaluationLine line(what, batches);
  for (std::int64_t turn = 0; turn * group.size() < batches; ++turn) {
    stop_point("evaluate");
    throw_if_any_stopped(group);
    const auto i = turn * group.size() + group.rank();
    if (i >= batches) continue;
    line.show(i + 1);
    const auto batch = make_batch(i);
    task.metrics->score(predictor.logits(batch), batch, own.emplace_back());
  }
  return add_scores_of_all(group, own);
}

}  // namespace

ScoreSums score_split(const Predictor& predictor, const Task& task, Split split, Precision precision,
                      torch::Device device, ProcessGroup& group) {
  return score_batches(predictor, task, fmt::format("the {} split", to_string(split)),
                       task.batches->evaluation_batches(split), precision, device, group,
                       [&](std::int64_t i) { return task.batches->evaluation_batch(split, i, device); });
}

nlohmann::ordered_json evaluate_split(const Predictor& predictor, const Task& task, Split split, Precision precision,
                                      torch::Device device, ProcessGroup& group) {
  return task.metrics->report(score_split(predictor, task, split, precision, device, group),
                              task.batches->source_of(split));
}

nlohmann::ordered_json estimate_split(const Predictor& predictor, const Task& task, Split split, std::int64_t batches,
                                      Precision precision, torch::Device device, ProcessGroup& group) {
  const auto sums = score_batches(predictor, task, fmt::format("random batches of the {} split", to_string(split)),
                                  batches, precision, device, group,
                                  [&](std::int64_t i) { return task.batches->random_batch(split, i, device); });
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
