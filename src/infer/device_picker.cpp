#include "infer/device_picker.h"

#include <limits>

namespace metaformer {

torch::Tensor pick_tokens_b(const torch::Tensor& all_logits_bv, const torch::Tensor& uniform_b,
                            const SamplingOptions& options, const torch::Tensor& never_n) {
  constexpr double impossible = -std::numeric_limits<double>::infinity();
  const auto logits_bv = never_n.defined() ? all_logits_bv.index_fill(1, never_n, impossible) : all_logits_bv;
  if (options.temperature == 0) return logits_bv.argmax(1);  // the lowest of equals
  const auto [sorted_bv, token_bv] = logits_bv.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  const auto vocabulary = logits_bv.size(1) - (never_n.defined() ? never_n.size(0) : 0);
  const auto count = options.top_k > 0 ? std::min(options.top_k, vocabulary) : vocabulary;
  const auto logit_bk = sorted_bv.narrow(1, 0, count).to(torch::kDouble);
  const auto sum_bk = ((logit_bk - logit_bk.narrow(1, 0, 1)) / options.temperature).exp().cumsum(1);
  // The place of the last token that may be picked, and the sum of the weights up to it.
  auto last_b1 = torch::full_like(token_bv.narrow(1, 0, 1), count - 1);
  auto total_b1 = sum_bk.narrow(1, count - 1, 1);
  if (options.top_p < 1) {
    last_b1 = (sum_bk < options.top_p * total_b1).sum(1, /*keepdim=*/true).clamp_max(count - 1);
    total_b1 = sum_bk.gather(1, last_b1);
  }
  // Sums that a device adds in parallel need not ascend to the last bit, so the place is bounded.
  const auto before_b1 = (sum_bk <= uniform_b.unsqueeze(1) * total_b1).sum(1, /*keepdim=*/true);
  return token_bv.gather(1, torch::minimum(before_b1, last_b1)).squeeze(1);
}

}  // namespace metaformer
