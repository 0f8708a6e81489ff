#include "inspect/recorder.h"

namespace metaformer {

static torch::Tensor first_of_batch(const torch::Tensor& values) {
  return values[0].detach().to(torch::kCPU, torch::kDouble).contiguous();
}

void Recorder::take_latest(std::vector<Scores>& to) {
  if (latest_) to.push_back(*std::exchange(latest_, std::nullopt));
}

void Recorder::stream(StreamPoint point, const torch::Tensor& x_bcd) {
  if (point == StreamPoint::embedding) stacks_.emplace_back();
  auto& stack = stacks_.back();
  if (point == StreamPoint::mixer_branch) take_latest(stack.own);
  if (point == StreamPoint::cross_branch) take_latest(stack.cross);
  stack.norms.add(point, first_of_batch(x_bcd).norm(2, 1).mean().item<double>());
}

void Recorder::attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce) {
  latest_.value().score_nce = first_of_batch(score_bnce);
  latest_.value().attention_nce = first_of_batch(weight_bnce);
}

}  // namespace metaformer
