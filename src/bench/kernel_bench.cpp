#include "bench/kernel_bench.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <functional>

#include "attention/score_positions.h"
#include "base/signals.h"
#include "bench/timing.h"
#include "ops/attention.h"
#include "ops/autocast.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/linear.h"

namespace metaformer {

namespace {

using torch::Tensor;

// One forward computation in two ways; the backward pass starts from its result.
struct Pair {
  std::string kernel;
  std::function<Tensor()> ours, library;
};

double timed_ms(const std::function<Tensor()>& forward, std::int64_t calls) {
  throw_if_stopped();
  const double ms = milliseconds_of(torch::kCPU, [&] {
    for (std::int64_t i = 0; i < calls; ++i) {
      const auto y = forward();
      y.backward(torch::ones_like(y));
    }
  });
  return ms / static_cast<double>(calls);
}

KernelResult measure(const Pair& pair, std::int64_t rounds) {
  constexpr double round_ms = 10;  // long enough for an exact time
  for (int i = 0; i < 3; ++i) timed_ms(pair.library, 1);
  timed_ms(pair.ours, 2);
  const auto calls = std::max<std::int64_t>(1, std::llround(round_ms / timed_ms(pair.ours, 1)));
  std::vector<double> ours, library, ratios;
  for (std::int64_t round = 0; round < rounds; ++round) {
    ours.push_back(timed_ms(pair.ours, calls));
    library.push_back(timed_ms(pair.library, calls));
    ratios.push_back(ours.back() / library.back());
  }
  return {pair.kernel, median(ours), median(library), median(ratios)};
}

using Random = std::function<Tensor(const std::vector<std::int64_t>& sizes, torch::ScalarType type)>;

// Attention, and the operators on the hidden features of the feed-forward branch.
void add_branches(std::vector<Pair>& pairs, const KernelRequest& request, const Random& random) {
  const auto& s = request.shape;
  const auto made = [&] { return random({s.batch, s.context, s.heads, s.head_width}, request.type).transpose(1, 2); };
  const auto q = made(), k = made(), v = made();
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_width));
  const auto attention = [=] {
    Pass pass;
    return host_attention(q, k, v, {.causal = true, .scale = scale}, pass);
  };
  if (can_attend_on_host(q, k, v))
    pairs.push_back({"attention", attention,
                     [=] { return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true, scale); }});
  const auto h_bch = random({s.batch, s.context, 4 * s.width()}, request.type);
  pairs.push_back({"gelu", [=] { return activate(GeluConfig{}, h_bch); }, [=] { return torch::gelu(h_bch); }});
  pairs.push_back({"gated silu", [=] { return gate(SiluConfig{}, h_bch); },
                   [=] {
                     const auto halves = h_bch.chunk(2, 2);
                     return torch::silu(halves[0]) * halves[1];
                   }});
  const auto dropped = [=, key = torch::ones({}, torch::kLong)] {
    Pass pass{.training = true, .random = RandomStream(key)};
    return dropout(h_bch, 0.1, pass);
  };
  pairs.push_back({"dropout", dropped, [=] { return torch::dropout(h_bch, 0.1, /*train=*/true); }});
}

// Operators on the residual stream: its norm, rotary positions, the loss over a vocabulary of subwords, and a linear
// layer.
void add_stream(std::vector<Pair>& pairs, const KernelRequest& request, const Random& random) {
  const auto& s = request.shape;
  const auto d = s.width();
  const auto y_bcd = random({s.batch, s.context, d}, torch::kFloat), gain_d = random({d}, torch::kFloat);
  constexpr double epsilon = 1e-6, smoothing = 0.1;
  pairs.push_back({"rms_norm", [=] { return rms_norm(y_bcd, gain_d, epsilon); },
                   [=] { return at::rms_norm(y_bcd, {gain_d.size(0)}, gain_d, epsilon); }});
  const auto q = random({s.batch, s.heads, s.context, s.head_width}, request.type);
  if (s.head_width % 2 == 0) {
    const auto tables_2cr = rotary_tables_2cr({}, s.head_width, s.context).to(torch::kFloat);
    const auto cos_cr = tables_2cr[0], sin_cr = tables_2cr[1];
    const auto rotated = [=] {
      const auto halves = q.chunk(2, 3);
      return torch::cat({halves[0] * cos_cr - halves[1] * sin_cr, halves[1] * cos_cr + halves[0] * sin_cr}, 3);
    };
    pairs.push_back({"rotary", [=] { return rotate_pairs(q, cos_cr, sin_cr); }, rotated});
  }
  constexpr std::int64_t vocabulary = 8000;
  const auto logits_tv = random({s.batch * s.context, vocabulary}, torch::kFloat);
  const auto targets_t = torch::arange(s.batch * s.context).remainder(vocabulary);
  pairs.push_back(
      {"cross_entropy", [=] { return cross_entropy_sum(logits_tv, targets_t, smoothing); },
       [=] { return at::cross_entropy_loss(logits_tv, targets_t, {}, at::Reduction::Sum, -1, smoothing); }});
  const auto precision = request.type == torch::kBFloat16 ? Precision::bf16 : Precision::fp32;
  const auto x_bcd = random({s.batch, s.context, d}, torch::kFloat), up_hd = random({4 * d, d}, torch::kFloat);
  const auto autocast = [=](auto product) {
    return [=] {
      const AutocastScope scope(precision, torch::kCPU);
      return product();
    };
  };
  pairs.push_back({"linear layer", autocast([=] { return linear_product(x_bcd, up_hd, {}); }),
                   autocast([=] { return torch::linear(x_bcd, up_hd); })});
}

}  // namespace

std::vector<KernelResult> bench_kernels(const KernelRequest& request) {
  const auto random = [generator = at::detail::createCPUGenerator(1)](const auto& sizes, torch::ScalarType type) {
    return torch::randn(sizes, generator).to(type).requires_grad_(true);
  };
  std::vector<Pair> pairs;
  add_branches(pairs, request, random);
  add_stream(pairs, request, random);
  std::vector<KernelResult> results;
  for (const auto& pair : pairs) results.push_back(measure(pair, request.rounds));
  return results;
}

}  // namespace metaformer
