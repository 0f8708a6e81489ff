#include "inspect/recorder.h"

namespace metaformer {

static torch::Tensor first_of_batch(const torch::Tensor& values) {
  return values[0].detach().to(torch::kCPU, torch::kDouble).contiguous();
}

void Recorder::stream(StreamPoint point, const torch::Tensor& x_bcd) {
  norms_.add(point, first_of_batch(x_bcd).norm(2, 1).mean().item<double>());
}

void Recorder::attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce) {
  layers_.back().score_nce = first_of_batch(score_bnce);
  layers_.back().attention_nce = first_of_batch(weight_bnce);
}

}  // namespace metaformer
