#include "tasks/shared_scores.h"

#include "distributed/gather_tensors.h"

namespace metaformer {

namespace {

constexpr char sum_sign = '+', rows_sign = '|';  // before the names

// Batch by batch; every one has the same names.
NamedTensors to_tensors(const std::vector<ScoreSums>& batches) {
  NamedTensors tensors;
  for (const auto& batch : batches) {
    for (const auto& [name, sum] : batch.sums()) tensors.emplace_back(sum_sign + name, sum);
    for (const auto& [name, rows] : batch.rows()) tensors.emplace_back(rows_sign + name, torch::cat(rows));
  }
  return tensors;
}

std::vector<ScoreSums> to_batches(const NamedTensors& tensors) {
  std::vector<ScoreSums> batches;
  for (const auto& [name, tensor] : tensors) {
    if (name == tensors.front().first) batches.emplace_back();
    if (name.front() == sum_sign)
      batches.back().add(name.substr(1), tensor);
    else
      batches.back().append(name.substr(1), tensor);
  }
  return batches;
}

}  // namespace

ScoreSums add_scores_of_all(ProcessGroup& group, const std::vector<ScoreSums>& own) {
  std::vector<std::vector<ScoreSums>> by_rank;
  if (group.size() == 1)
    by_rank.push_back(own);
  else
    for (const auto& tensors : gather_tensors(group, to_tensors(own))) by_rank.push_back(to_batches(tensors));
  ScoreSums sums;
  for (std::size_t turn = 0; turn < by_rank.front().size(); ++turn)
    for (const auto& batches : by_rank)
      if (turn < batches.size()) sums.add(batches[turn]);
  return sums;
}

}  // namespace metaformer
