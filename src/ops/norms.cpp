#include "ops/norms.h"

#include <algorithm>

#include "cpu/rms_norm.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gain's gradient is summed over chunks of rows, then over the chunks: always the same ones.
constexpr std::int64_t most_chunks = 16;

std::int64_t grain_of(std::int64_t width) { return std::max<std::int64_t>(1, (1 << 14) / width); }

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& given, const Tensor& gain_d, double epsilon) {
    const auto x = given.contiguous();
    const auto width = gain_d.size(0), rows = x.numel() / width;
    const auto y = torch::empty_like(x), factor_r = torch::empty({rows}, x.options());
    at::parallel_for(0, rows, grain_of(width), [&](std::int64_t begin, std::int64_t end) {
      normalise_by_rms(x.const_data_ptr<float>() + begin * width, gain_d.const_data_ptr<float>(),
                       y.data_ptr<float>() + begin * width, factor_r.data_ptr<float>() + begin, end - begin, width,
                       static_cast<float>(epsilon));
    });
    context->save_for_backward({x, gain_d, factor_r});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("rms_norm");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &gain_d = saved[1], &factor_r = saved[2], dy = gradients[0].contiguous();
    const auto width = gain_d.size(0), rows = x.numel() / width;
    const auto dx = torch::empty_like(x);
    const auto chunk = std::max<std::int64_t>(1, (rows + most_chunks - 1) / most_chunks);
    const auto chunks = (rows + chunk - 1) / chunk;
    const auto dgain_nd = torch::zeros({chunks, width}, x.options());
    const auto grain = std::max<std::int64_t>(1, grain_of(width) / chunk);
    at::parallel_for(0, chunks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) {
        const auto first = i * chunk;
        rms_norm_gradients({.x = x.const_data_ptr<float>() + first * width,
                            .gain = gain_d.const_data_ptr<float>(),
                            .factors = factor_r.const_data_ptr<float>() + first,
                            .dy = dy.const_data_ptr<float>() + first * width,
                            .rows = std::min(chunk, rows - first),
                            .width = width},
                           dx.data_ptr<float>() + first * width, dgain_nd.data_ptr<float>() + i * width);
      }
    });
    return {dx, dgain_nd.sum(0), {}};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& gain_d, double epsilon) {
  const auto type = torch::promote_types(x.scalar_type(), gain_d.scalar_type());
  const auto wide = x.to(type);
  const bool has_kernel = x.is_cpu() && type == torch::kFloat && gain_d.is_contiguous() && x.numel() > 0;
  if (has_kernel) return RmsNorm::apply(wide, gain_d, epsilon);
  return torch::rms_norm(wide, {gain_d.size(0)}, gain_d.to(type), epsilon);
}

}  // namespace metaformer
