#include "step/batch_loss.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/fault.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

// Summed over chunks of the tokens, whose logits are made one after the other, and again in backward.
torch::Tensor loss_in_chunks(const StepParts& parts, const Batch& batch, const torch::Tensor& hidden) {
  const auto hidden_td = hidden.flatten(0, -2), targets_t = wanted_targets_t(batch),
             weights_t = wanted_weights_t(batch);
  const auto tokens = targets_t.size(0), chunks = std::min(parts.config.train.loss_chunks, tokens);
  torch::Tensor sum;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto first = tokens * i / chunks, count = tokens * (i + 1) / chunks - first;
    Batch chunk;
    chunk.targets_bc = targets_t.narrow(0, first, count).unsqueeze(0);
    if (weights_t.defined()) chunk.target_weights_bc = weights_t.narrow(0, first, count).unsqueeze(0);
    const auto loss_of = [&parts, chunk](const torch::Tensor& part_td) {
      return parts.task.objective->loss(parts.model.logits_of(part_td.unsqueeze(0)), chunk);
    };
    const auto loss = recomputed(loss_of, hidden_td.narrow(0, first, count), parts.model.head_weights());
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

}  // namespace

torch::Tensor batch_loss(const StepParts& parts, const Batch& batch, const torch::Tensor& weight, Pass pass,
                         std::int64_t number, AutocastCasts casts) {
  const AutocastScope autocast(parts.config.train.precision, parts.device, casts);
  auto* memory = parts.memory != nullptr ? parts.memory->of_pass(number) : nullptr;
  const auto sum = parts.config.train.loss_chunks > 1
                       ? loss_in_chunks(parts, batch, parts.model.hidden(batch, memory, pass))
                       : parts.task.objective->loss(parts.model.forward(batch, memory, pass), batch);
  return sum / weight.to(sum.scalar_type());
}

torch::Tensor with_faults(torch::Tensor loss) {
  if (fault_strikes("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
  if (fault_strikes("overflow"))  // loss and gradients, as with a scale too large for fp16
    loss = loss * std::numeric_limits<float>::max() * std::numeric_limits<float>::max();
  return loss;
}

torch::Tensor scaled(const StepParts& parts, const torch::Tensor& loss) {
  if (!loss.requires_grad())
    throw Error(ExitCode::usage,
                "train.freeze: the loss depends on no parameter that is left, so that there is nothing to train");
  return parts.loss_scale == nullptr ? loss : loss * parts.loss_scale->factor();
}

}  // namespace metaformer
