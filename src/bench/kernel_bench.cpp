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

// One computation in two ways, forward; backward follows from the results.
struct Pair {
  std::string kernel;
  std::function<Tensor()> ours, library;
  std::vector<double> ours_ms = {}, library_ms = {};
};

class KernelBench {
 public:
  explicit KernelBench(const KernelRequest& request) : request_(request) {
    add_attention();
    add_activations();
    add_norm_and_rotation();
    add_loss();
    add_linear();
  }

  std::vector<KernelResult> run() {
    for (auto& pair : pairs_) {
      const auto calls = calls_of_a_round(pair);
      for (std::int64_t round = 0; round < request_.rounds; ++round) {
        pair.ours_ms.push_back(timed_ms(pair.ours, calls));
        pair.library_ms.push_back(timed_ms(pair.library, calls));
      }
    }
    std::vector<KernelResult> results;
    for (const auto& pair : pairs_) results.push_back(result_of(pair));
    return results;
  }

 private:
  static KernelResult result_of(const Pair& pair) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < pair.ours_ms.size(); ++i) ratios.push_back(pair.ours_ms[i] / pair.library_ms[i]);
    return {pair.kernel, median(pair.ours_ms), median(pair.library_ms), median(ratios)};
  }

  static double timed_ms(const std::function<Tensor()>& forward, std::int64_t calls) {
    throw_if_stopped();
    const double ms = milliseconds_of(torch::kCPU, [&] {
      for (std::int64_t i = 0; i < calls; ++i) {
        const auto y = forward();
        y.backward(torch::ones_like(y));
      }
    });
    return ms / static_cast<double>(calls);
  }

  // Enough to be timed; warms both sides up.
  static std::int64_t calls_of_a_round(const Pair& pair) {
    constexpr double round_ms = 10;
    for (int i = 0; i < 3; ++i) timed_ms(pair.library, 1);
    timed_ms(pair.ours, 2);
    return std::max<std::int64_t>(1, std::llround(round_ms / timed_ms(pair.ours, 1)));
  }

  Tensor random(std::vector<std::int64_t> sizes, torch::ScalarType type) {
    return torch::randn(sizes, generator_).to(type).requires_grad_(true);
  }

  void add(std::string kernel, std::function<Tensor()> ours, std::function<Tensor()> library) {
    pairs_.push_back({.kernel = std::move(kernel), .ours = std::move(ours), .library = std::move(library)});
  }

  void add_attention() {
    const auto& s = request_.shape;
    const auto made = [&] {
      return random({s.batch, s.context, s.heads, s.head_width}, request_.type).transpose(1, 2);
    };
    const auto q = made(), k = made(), v = made();
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_width));
    if (!can_attend_on_host(q, k, v)) return;
    add(
        "attention",
        [=] {
          Pass pass;
          return host_attention(q, k, v, {.causal = true, .scale = scale}, pass);
        },
        [=] { return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true, scale); });
  }

  // Of the hidden features of the feed-forward branch.
  void add_activations() {
    const auto& s = request_.shape;
    const auto h_bch = random({s.batch, s.context, 4 * s.width()}, request_.type);
    add(
        "gelu", [=] { return activate(GeluConfig{}, h_bch); }, [=] { return torch::gelu(h_bch); });
    add(
        "gated silu", [=] { return gate(SiluConfig{}, h_bch); },
        [=] {
          const auto halves = h_bch.chunk(2, 2);
          return torch::silu(halves[0]) * halves[1];
        });
    const auto key = torch::ones({}, torch::kLong);
    add(
        "dropout",
        [=] {
          Pass pass{.training = true, .random = RandomStream(key)};
          return dropout(h_bch, 0.1, pass);
        },
        [=] { return torch::dropout(h_bch, 0.1, /*train=*/true); });
  }

  void add_norm_and_rotation() {
    const auto& s = request_.shape;
    const auto x_bcd = random({s.batch, s.context, s.width()}, torch::kFloat),
               gain_d = random({s.width()}, torch::kFloat);
    constexpr double epsilon = 1e-6;
    add(
        "rms_norm", [=] { return rms_norm(x_bcd, gain_d, epsilon); },
        [=] { return at::rms_norm(x_bcd, {gain_d.size(0)}, gain_d, epsilon); });
    const auto q = random({s.batch, s.heads, s.context, s.head_width}, request_.type);
    if (s.head_width % 2 != 0) return;
    const auto tables = make_rotary_tables({}, s.head_width, s.context);
    const auto cos_cr = tables.cos_cr.to(torch::kFloat), sin_cr = tables.sin_cr.to(torch::kFloat);
    add(
        "rotary", [=] { return rotate_pairs(q, cos_cr, sin_cr); },
        [=] {
          const auto halves = q.chunk(2, 3);
          return torch::cat({halves[0] * cos_cr - halves[1] * sin_cr, halves[1] * cos_cr + halves[0] * sin_cr}, 3);
        });
  }

  // Of a vocabulary of subwords.
  void add_loss() {
    const auto& s = request_.shape;
    constexpr std::int64_t vocabulary = 8000;
    constexpr double smoothing = 0.1;
    const auto logits_tv = random({s.batch * s.context, vocabulary}, torch::kFloat);
    const auto targets_t = torch::arange(s.batch * s.context).remainder(vocabulary);
    add(
        "cross_entropy", [=] { return cross_entropy_sum(logits_tv, targets_t, smoothing); },
        [=] { return at::cross_entropy_loss(logits_tv, targets_t, {}, at::Reduction::Sum, -1, smoothing); });
  }

  void add_linear() {
    const auto& s = request_.shape;
    const auto d = s.width();
    const auto precision = request_.type == torch::kBFloat16 ? Precision::bf16 : Precision::fp32;
    const auto x_bcd = random({s.batch, s.context, d}, torch::kFloat), up_hd = random({4 * d, d}, torch::kFloat);
    add(
        "linear layer",
        [=] {
          const AutocastScope autocast(precision, torch::kCPU);
          return linear_product(x_bcd, up_hd, {});
        },
        [=] {
          const AutocastScope autocast(precision, torch::kCPU);
          return torch::linear(x_bcd, up_hd);
        });
  }

  const KernelRequest& request_;
  torch::Generator generator_ = at::detail::createCPUGenerator(1);
  std::vector<Pair> pairs_;
};

}  // namespace

std::vector<KernelResult> bench_kernels(const KernelRequest& request) { return KernelBench(request).run(); }

}  // namespace metaformer
