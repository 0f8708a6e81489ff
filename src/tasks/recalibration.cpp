#include "tasks/recalibration.h"

#include <algorithm>

#include "ops/autocast.h"
#include "tasks/batches.h"
#include "tasks/network_predictor.h"

namespace metaformer {

torch::Tensor calibrating_shift(const torch::Tensor& logits_bv, const torch::Tensor& targets_bv,
                                const torch::Tensor& weights_b) {
  constexpr int most_rounds = 500;
  constexpr double close = 1e-7;
  const auto share_b1 = (weights_b / weights_b.sum()).unsqueeze(1);
  const auto wanted_v = (targets_bv * share_b1).sum(0);
  auto shift_v = torch::zeros_like(wanted_v);
  for (int round = 0; round < most_rounds; ++round) {
    const auto told_v = (torch::softmax(logits_bv + shift_v, 1) * share_b1).sum(0);
    const auto step_v = torch::where(wanted_v > 0, (wanted_v / told_v).log(), 0.0);
    shift_v = shift_v + step_v;
    if (step_v.abs().max().item<double>() < close) break;
  }
  return shift_v;
}

void recalibrate(Classifier& model, const TrainingTexts& texts, std::int64_t count, const ExperimentConfig& config,
                 const torch::Tensor& weights_v, torch::Device device) {
  constexpr std::int64_t most_texts = 4096;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(config.train.precision, device);
  model.set_logit_shift(torch::zeros({}));  // what follows is then a function of the weights only
  const NetworkPredictor predictor(model);
  std::vector<torch::Tensor> logits, labels;
  const auto wanted = std::min(most_texts, count), rows = config.train.batch_size;
  for (std::int64_t first = 0; first < wanted; first += rows) {
    const auto batch = texts(first, std::min(rows, wanted - first));
    logits.push_back(widened(predictor.logits(batch)).to(torch::kCPU, torch::kDouble));
    labels.push_back(batch.labels_l.cpu());
  }
  const auto logits_bv = torch::cat(logits), labels_l = torch::cat(labels);
  if (!logits_bv.isfinite().all().item<bool>()) return;  // the evaluation that follows tells of it
  const auto classes = logits_bv.size(1);
  const double smoothing = classification(config).label_smoothing;
  const auto targets_bv =
      torch::one_hot(labels_l, classes) * (1 - smoothing) + smoothing / static_cast<double>(classes);
  // As the library does it, a class's weight goes with each target's share of that class.
  const auto weighted_bv = weights_v.defined() ? targets_bv * weights_v.to(torch::kCPU, torch::kDouble) : targets_bv;
  const auto weights_b = weighted_bv.sum(1);
  model.set_logit_shift(calibrating_shift(logits_bv, weighted_bv / weights_b.unsqueeze(1), weights_b));
}

}  // namespace metaformer
