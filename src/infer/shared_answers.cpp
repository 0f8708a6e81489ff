#include "infer/shared_prediction.h"

#include "distributed/gather_tensors.h"

namespace metaformer {

namespace {

// The ids of all texts in a row, and their lengths.
NamedTensors to_tensors(const std::vector<TextBatch>& batches) {
  NamedTensors tensors;
  for (const auto& batch : batches) {
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> lengths;
    for (const auto& text : batch) {
      ids.insert(ids.end(), text.begin(), text.end());
      lengths.push_back(std::ssize(text));
    }
    tensors.emplace_back("ids", torch::tensor(ids, torch::kInt));
    tensors.emplace_back("lengths", torch::tensor(lengths, torch::kLong));
  }
  return tensors;
}

TextBatch to_batch(const torch::Tensor& ids, const torch::Tensor& lengths) {
  TextBatch batch;
  const auto* next = ids.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < lengths.numel(); ++i) {
    const auto length = lengths[i].item<std::int64_t>();
    batch.emplace_back(next, next + length);
    next += length;
  }
  return batch;
}

// [texts, classes].
NamedTensors to_tensors(const std::vector<Prediction>& predictions) {
  std::vector<torch::Tensor> rows;
  for (const auto& prediction : predictions) rows.push_back(torch::tensor(prediction.probabilities, torch::kDouble));
  return {{"probabilities", torch::stack(rows)}};
}

}  // namespace

std::vector<std::vector<Prediction>> predict_together(ProcessGroup& group, const LoadedRun& run,
                                                      const std::vector<TextBatch>& batches) {
  gather_tensors(group, to_tensors(batches));
  std::vector<std::vector<Prediction>> predictions = {predict(run, batches.front())};
  const auto of_ranks = gather_tensors(group, {});
  for (std::size_t rank = 1; rank < batches.size(); ++rank)
    predictions.push_back(to_predictions(of_ranks[rank].front().second));
  return predictions;
}

void help_predict(ProcessGroup& group, const LoadedRun& run) {
  constexpr std::size_t tensors_of_batch = 2;
  const auto own = static_cast<std::size_t>(group.rank()) * tensors_of_batch;
  while (true) {
    const auto batches = gather_tensors(group, {}).front();
    if (batches.empty()) return;
    const bool has_share = own < batches.size();
    gather_tensors(group, has_share ? to_tensors(predict(run, to_batch(batches[own].second, batches[own + 1].second)))
                                    : NamedTensors{});
  }
}

void end_predictions(ProcessGroup& group) {
  if (group.size() > 1) gather_tensors(group, {});
}

}  // namespace metaformer
