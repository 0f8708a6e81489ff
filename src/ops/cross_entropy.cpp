#include "ops/cross_entropy.h"

#include "cpu/cross_entropy.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr std::int64_t rows_at_once = 16;

LogitRows rows_from(const Tensor& logits_tv, const Tensor& targets_t, double smoothing, std::int64_t first,
                    std::int64_t end) {
  const auto width = logits_tv.size(1);
  return {.logits = logits_tv.const_data_ptr<float>() + first * width,
          .targets = targets_t.const_data_ptr<std::int64_t>() + first,
          .rows = end - first,
          .width = width,
          .smoothing = smoothing};
}

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& logits_tv, const Tensor& targets_t, double smoothing) {
    const auto rows = logits_tv.size(0);
    auto greatest_t = torch::empty({rows}, torch::kFloat), log_sum_t = torch::empty_like(greatest_t);
    auto loss_t = torch::empty({rows}, torch::kDouble);
    at::parallel_for(0, rows, rows_at_once, [&](std::int64_t first, std::int64_t end) {
      cross_entropy_rows(rows_from(logits_tv, targets_t, smoothing, first, end),
                         greatest_t.mutable_data_ptr<float>() + first, log_sum_t.mutable_data_ptr<float>() + first,
                         loss_t.mutable_data_ptr<double>() + first);
    });
    context->save_for_backward({logits_tv, targets_t, greatest_t, log_sum_t});
    context->saved_data["smoothing"] = smoothing;
    return loss_t.sum().to(torch::kFloat);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("the cross-entropy");
    const auto saved = context->get_saved_variables();
    const auto &logits_tv = saved[0], &targets_t = saved[1], &greatest_t = saved[2], &log_sum_t = saved[3];
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const auto factor = gradients[0].item<float>();
    auto gradient_tv = torch::empty_like(logits_tv);
    at::parallel_for(0, logits_tv.size(0), rows_at_once, [&](std::int64_t first, std::int64_t end) {
      cross_entropy_gradients(rows_from(logits_tv, targets_t, smoothing, first, end),
                              greatest_t.const_data_ptr<float>() + first, log_sum_t.const_data_ptr<float>() + first,
                              factor, gradient_tv.mutable_data_ptr<float>() + first * logits_tv.size(1));
    });
    return {gradient_tv, {}, {}};
  }
};

void require_targets(const Tensor& targets_t, std::int64_t width) {
  TORCH_CHECK(targets_t.numel() == 0 || targets_t.max().item<std::int64_t>() < width, "a target is not among the ",
              width, " logits");
}

}  // namespace

Tensor cross_entropy_sum(const Tensor& logits_tv, const Tensor& targets_t, double smoothing) {
  if (!logits_tv.device().is_cpu() || logits_tv.scalar_type() != torch::kFloat)
    return at::cross_entropy_loss(logits_tv, targets_t, {}, at::Reduction::Sum, /*ignore_index=*/-1, smoothing);
  require_targets(targets_t, logits_tv.size(1));
  return CrossEntropy::apply(logits_tv.contiguous(), targets_t.contiguous(), smoothing);
}

}  // namespace metaformer
