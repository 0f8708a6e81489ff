#include "ops/causal_convolution.h"

#include "cpu/causal_convolution.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

// The tensors of a call, for the kernels.
struct ConvolutionOperands {
  Tensor x_bed, filter_jd, bias_d, segment_be;
  std::int64_t newest = 0;
  bool silu = false;

  TokenFilter filter() const {
    return {.filter_jd = filter_jd.data_ptr<float>(),
            .bias_d = bias_d.defined() ? bias_d.data_ptr<float>() : nullptr,
            .size = filter_jd.size(0),
            .width = filter_jd.size(1),
            .silu = silu};
  }

  // Calls compute(number of a sequence, its tokens) for all sequences and groups of features, on LibTorch's threads.
  template <class Compute>
  void for_tokens(const Compute& compute) const {
    // For long filters a group has sixteen features, so that their values of all tokens stay in the nearest cache.
    const std::int64_t features = filter_jd.size(0) > 64 ? 16 : 64;
    const auto b = x_bed.size(0), e = x_bed.size(1), d = x_bed.size(2), groups = (d + features - 1) / features;
    for_rows(b * groups, newest * features, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) {
        const auto sequence = i / groups, first = i % groups * features;
        compute(sequence,
                FilteredTokens{
                    .x = x_bed.data_ptr<float>() + sequence * e * d,
                    .segment = segment_be.defined() ? segment_be.data_ptr<std::int64_t>() + sequence * e : nullptr,
                    .tokens = e,
                    .newest = newest,
                    .begin = first,
                    .end = std::min(first + features, d)});
      }
    });
  }
};

Tensors convolution_backward(const Backward& in, std::int64_t newest, bool silu) {
  const ConvolutionOperands operands{.x_bed = in.saved[0],
                                     .filter_jd = in.saved[1],
                                     .bias_d = in.saved[2],
                                     .segment_be = in.saved[3],
                                     .newest = newest,
                                     .silu = silu};
  const auto dy_bcd = in.dy[0].contiguous();
  const auto dx_bed = torch::zeros_like(operands.x_bed);
  const auto b = dx_bed.size(0), d = dx_bed.size(2), size = operands.filter_jd.size(0);
  // One sum per sequence, so that the sums do not depend on the number of threads.
  const auto dfilter_bjd = torch::zeros({b, size, d}, dx_bed.options());
  const auto dbias_bd = operands.bias_d.defined() ? torch::zeros({b, d}, dx_bed.options()) : Tensor();
  operands.for_tokens([&](std::int64_t i, const FilteredTokens& tokens) {
    filter_tokens_backward(operands.filter(), tokens, dy_bcd.data_ptr<float>() + i * newest * d,
                           dx_bed.data_ptr<float>() + i * tokens.tokens * d,
                           dfilter_bjd.data_ptr<float>() + i * size * d,
                           dbias_bd.defined() ? dbias_bd.data_ptr<float>() + i * d : nullptr);
  });
  return {dx_bed, dfilter_bjd.sum(0).t(), dbias_bd.defined() ? dbias_bd.sum(0) : Tensor()};
}

Tensor convolve_by_kernel(const CausalConvolution& convolution, const Tensor& given_bed, const Tensor& segment_be,
                          std::int64_t newest) {
  const auto x_bed = given_bed.to(torch::kFloat).contiguous();
  const auto filter_dj = convolution.filter_dj.to(torch::kFloat);
  const auto bias_d = convolution.bias_d.defined() ? convolution.bias_d.to(torch::kFloat).contiguous() : Tensor();
  const auto silu = convolution.silu;
  const auto forward = [&](Tensors& saved) {
    const ConvolutionOperands operands{.x_bed = x_bed,
                                       .filter_jd = filter_dj.t().contiguous(),
                                       .bias_d = bias_d,
                                       .segment_be = segment_be.defined() ? segment_be.contiguous() : segment_be,
                                       .newest = newest,
                                       .silu = silu};
    const auto y_bcd = torch::empty({x_bed.size(0), newest, x_bed.size(2)}, x_bed.options());
    operands.for_tokens([&](std::int64_t i, const FilteredTokens& tokens) {
      filter_tokens(operands.filter(), tokens, y_bcd.data_ptr<float>() + i * newest * x_bed.size(2));
    });
    saved = {x_bed, operands.filter_jd, bias_d, operands.segment_be};
    return y_bcd;
  };
  return own_node("CausalConvolution", {x_bed, filter_dj, bias_d}, forward,
                  [newest, silu](const Backward& in) { return convolution_backward(in, newest, silu); })
      .to(given_bed.scalar_type());
}

}  // namespace

Tensor causal_convolution_by_operators(const CausalConvolution& convolution, const Tensor& x_bed,
                                       const Tensor& segment_be, std::int64_t newest) {
  const auto size = convolution.filter_dj.size(1), e = x_bed.size(1);
  const auto filter_dj = convolution.filter_dj.to(x_bed.scalar_type());
  const auto newest_of = [&](const Tensor& x, std::int64_t back) { return x.narrow(1, e - newest - back, newest); };
  auto y_bcd = newest_of(x_bed, 0) * filter_dj.select(1, size - 1);
  // Padding with zeros before the first token. Its segment, -2, is that of no token.
  const auto missing = std::max<std::int64_t>(0, newest + size - 1 - e);
  const auto all_bed = torch::constant_pad_nd(x_bed, {0, 0, missing, 0});
  const auto segments = segment_be.defined() ? torch::constant_pad_nd(segment_be, {missing, 0}, -2) : segment_be;
  for (std::int64_t back = 1; back < size; ++back) {
    const auto from = missing + e - newest - back;
    auto part_bcd = all_bed.narrow(1, from, newest) * filter_dj.select(1, size - 1 - back);
    if (segments.defined())
      part_bcd = part_bcd * (segments.narrow(1, from, newest) == newest_of(segment_be, 0)).unsqueeze(2);
    y_bcd = y_bcd + part_bcd;
  }
  if (convolution.bias_d.defined()) y_bcd = y_bcd + convolution.bias_d.to(y_bcd.scalar_type());
  return convolution.silu ? torch::silu(y_bcd) : y_bcd;
}

Tensor causal_convolution(const CausalConvolution& convolution, const Tensor& x_bed, const Tensor& segment_be,
                          std::int64_t newest) {
  return (fits_cpu_kernels(x_bed) ? convolve_by_kernel : causal_convolution_by_operators)(convolution, x_bed,
                                                                                          segment_be, newest);
}

}  // namespace metaformer
