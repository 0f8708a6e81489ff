#include "ops/residual_norm.h"

#include <c10/core/DeviceGuard.h>

#include "cuda/residual_norm.h"
#include "ops/device.h"
#include "ops/fused_metric.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

void* row_data(const Tensor& x) { return x.defined() ? x.data_ptr() : nullptr; }

Tensors residual_norm_forward(cuda::ResidualNorm in, const ResidualSum& sum, const RowNorm& norm,
                              torch::ScalarType normed, const Tensor& key, Tensors& saved) {
  const c10::OptionalDeviceGuard guard(sum.y_bcd.device());
  const auto y_bcd = sum.y_bcd.contiguous(), x_bcd = sum.x_bcd.defined() ? sum.x_bcd.contiguous() : Tensor();
  const auto floats = y_bcd.options().dtype(torch::kFloat);
  const auto sum_bcd = torch::empty(y_bcd.sizes(), floats), n_bcd = torch::empty(y_bcd.sizes(), floats.dtype(normed));
  const auto mean_r = norm.centred ? torch::empty({in.rows}, floats) : Tensor();
  const auto factor_r = torch::empty({in.rows}, floats);
  in.x = floats_of(x_bcd);
  in.y = y_bcd.data_ptr();
  in.gain = floats_of(norm.gain_d);
  in.bias = floats_of(norm.bias_d);
  in.sum = floats_of(sum_bcd);
  in.n = n_bcd.data_ptr();
  in.mean = floats_of(mean_r);
  in.factor = floats_of(factor_r);
  cuda::residual_norm(in, stream_of(y_bcd));
  saved = {sum_bcd, norm.gain_d, mean_r, factor_r, key};
  return {sum_bcd, n_bcd};
}

// The gradients of x, y, gain and bias. `in`: the sizes, types and draw of forward.
Tensors residual_norm_gradients(const Backward& backward, cuda::ResidualNorm in, torch::ScalarType y_type) {
  const auto &sum_bcd = backward.saved[0], &gain_d = backward.saved[1];
  const c10::OptionalDeviceGuard guard(sum_bcd.device());
  const auto dsum_bcd = backward.dy[0].contiguous(), dn_bcd = backward.dy[1].contiguous();
  in.gain = floats_of(gain_d);
  in.sum = floats_of(sum_bcd);
  in.mean = floats_of(backward.saved[2]);
  in.factor = floats_of(backward.saved[3]);
  in.key = backward.saved[4].defined() ? backward.saved[4].const_data_ptr<std::int64_t>() : nullptr;
  const bool is_shared = in.probability == 0 && y_type == torch::kFloat;  // dy is dx
  Tensor dx_bcd, dy_bcd, dgain_d, dbias_d, partial;
  if (backward.needs(0) || (is_shared && backward.needs(1))) dx_bcd = torch::empty_like(sum_bcd);
  if (backward.needs(1)) dy_bcd = is_shared ? dx_bcd : torch::empty(sum_bcd.sizes(), sum_bcd.options().dtype(y_type));
  if (backward.needs(2)) dgain_d = torch::empty_like(gain_d);
  if (backward.needs(3)) dbias_d = torch::empty_like(gain_d);
  if (dgain_d.defined() || dbias_d.defined())
    partial = torch::empty({cuda::residual_norm_partial_sums(in.rows, in.width)}, sum_bcd.options());
  cuda::residual_norm_backward({.forward = in,
                                .dn = dn_bcd.data_ptr(),
                                .dsum = floats_of(dsum_bcd),
                                .dx = floats_of(dx_bcd),
                                .dy = is_shared ? nullptr : row_data(dy_bcd),
                                .dgain = floats_of(dgain_d),
                                .dbias = floats_of(dbias_d),
                                .partial = floats_of(partial)},
                               stream_of(sum_bcd));
  return {backward.needs(0) ? dx_bcd : Tensor(), dy_bcd, dgain_d, dbias_d};
}

}  // namespace

bool residual_norm_fits(const ResidualSum& sum, const RowNorm& norm) {
  const auto& y_bcd = sum.y_bcd;
  const auto is_float_beside_y = [&](const Tensor& x) {
    return !x.defined() || (x.scalar_type() == torch::kFloat && x.device() == y_bcd.device());
  };
  if (!metric_kernel_obstacle(y_bcd.device()).empty()) return false;
  if (!is_row_type(y_bcd.scalar_type()) || y_bcd.dim() < 2 || y_bcd.numel() == 0) return false;
  if (!is_float_beside_y(sum.x_bcd) || !is_float_beside_y(norm.gain_d) || !is_float_beside_y(norm.bias_d)) return false;
  if (sum.x_bcd.defined() && sum.x_bcd.sizes() != y_bcd.sizes()) return false;
  if (!norm.gain_d.is_contiguous() || (norm.bias_d.defined() && !norm.bias_d.is_contiguous())) return false;
  return norm.gain_d.size(0) == y_bcd.size(-1) && y_bcd.size(-1) <= cuda::most_norm_width;
}

SumAndNorm residual_norm(const ResidualSum& sum, const RowNorm& norm, torch::ScalarType normed, Pass& pass) {
  TORCH_CHECK(residual_norm_fits(sum, norm) && is_row_type(normed),
              "there is no kernel for this residual sum and norm");
  const auto& y_bcd = sum.y_bcd;
  const auto width = y_bcd.size(-1);
  cuda::ResidualNorm in{.rows = y_bcd.numel() / width,
                        .width = static_cast<int>(width),
                        .y_element = row_element(y_bcd.scalar_type()),
                        .n_element = row_element(normed),
                        .centred = norm.centred,
                        .epsilon = static_cast<float>(norm.epsilon)};
  Tensor key;  // the tensor is kept, not its value: recorded work may be replayed with another one
  if (pass.training && sum.dropout > 0) {
    const auto draw = pass.random.next();
    key = draw.key;
    in.probability = sum.dropout;
    in.key = key.const_data_ptr<std::int64_t>();
    in.number = draw.number;
    in.places = {.run = y_bcd.numel() / y_bcd.size(0), .first_row = draw.first_row};
  }
  const auto forward = [&](Tensors& saved) { return residual_norm_forward(in, sum, norm, normed, key, saved); };
  const auto results = own_nodes("a residual sum and its norm", {sum.x_bcd, y_bcd, norm.gain_d, norm.bias_d}, forward,
                                 [in, type = y_bcd.scalar_type()](const Backward& backward) {
                                   return residual_norm_gradients(backward, in, type);
                                 });
  return {results[0], results[1]};
}

}  // namespace metaformer
