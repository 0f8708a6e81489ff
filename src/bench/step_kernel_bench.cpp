#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>

#include "attention/score_positions.h"
#include "bench/kernel_bench.h"
#include "bench/timing.h"
#include "ops/autocast.h"
#include "ops/device.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/fused_cross_entropy.h"
#include "ops/fused_metric.h"
#include "ops/fused_update.h"
#include "ops/linear.h"
#include "ops/residual_norm.h"

namespace metaformer {

namespace {

using torch::Tensor;

// The same work in two ways.
struct WorkPair {
  std::string kernel;
  std::function<void()> ours, library;
};

KernelResult measure_in_turn(const WorkPair& pair, const KernelRequest& request) {
  const auto timer = [&](const std::function<void()>& work) {
    work();  // nothing is loaded while a graph is recorded
    std::string problem;
    return WorkTimer(request.device, work, make_cuda_graph(request.device, problem));
  };
  auto ours = timer(pair.ours), library = timer(pair.library);
  std::vector<double> our_times, library_times, ratios;
  for (std::int64_t round = 0; round < request.rounds; ++round) {
    our_times.push_back(ours.milliseconds());
    library_times.push_back(library.milliseconds());
    ratios.push_back(our_times.back() / library_times.back());
  }
  return {pair.kernel, median(our_times), median(library_times), median(ratios)};
}

// Forward and backward pass of the sum at the end of a branch and of the next norm, as they are between two branches.
struct ResidualNormCall {
  Tensor x_bcd, y_bcd, gain_d, bias_d, dsum_bcd, dn_bcd, key;
  double dropout = 0;

  SumAndNorm by_kernel(Pass& pass) const {
    const RowNorm norm{.centred = true, .gain_d = gain_d, .bias_d = bias_d, .epsilon = 1e-5};
    return residual_norm({.x_bcd = x_bcd, .y_bcd = y_bcd, .dropout = dropout}, norm, y_bcd.scalar_type(), pass);
  }
  SumAndNorm by_operators(Pass& pass) const {
    const auto sum_bcd = x_bcd + metaformer::dropout(y_bcd, dropout, pass);
    const auto n_bcd = torch::layer_norm(sum_bcd, gain_d.sizes(), gain_d, bias_d, 1e-5);
    return {sum_bcd, n_bcd.to(y_bcd.scalar_type())};
  }
  void run(bool kernel) const {
    Pass pass{.training = true, .random = RandomStream(key)};
    const auto y = kernel ? by_kernel(pass) : by_operators(pass);
    torch::autograd::grad({y.sum_bcd, y.normed_bcd}, {x_bcd, y_bcd, gain_d, bias_d}, {dsum_bcd, dn_bcd});
  }
};

WorkPair residual_norm_pair(const KernelRequest& request, double dropout) {
  const std::vector<std::int64_t> sizes = {request.shape.batch, request.shape.context, request.shape.width()};
  const auto random = [&](const std::vector<std::int64_t>& of, torch::ScalarType type) {
    return torch::randn(of, torch::TensorOptions(request.device).dtype(type)).requires_grad_(true);
  };
  const ResidualNormCall call{.x_bcd = random(sizes, torch::kFloat),
                              .y_bcd = random(sizes, request.type),
                              .gain_d = random({sizes[2]}, torch::kFloat),
                              .bias_d = random({sizes[2]}, torch::kFloat),
                              .dsum_bcd = random(sizes, torch::kFloat).detach(),
                              .dn_bcd = random(sizes, request.type).detach(),
                              .key = torch::ones({1}, torch::TensorOptions(torch::kLong).device(request.device)),
                              .dropout = dropout};
  return {fmt::format("residual sum and norm, dropout {}", dropout), [=] { call.run(/*kernel=*/true); },
          [=] { call.run(/*kernel=*/false); }};
}

// Bias and activation between the products of a feed-forward branch. The product before the operators adds the bias at
// no cost, so that only its gradient is theirs.
WorkPair activation_pair(const KernelRequest& request, bool gated) {
  const auto& s = request.shape;
  const auto width = 4 * s.width(), up_width = gated ? 2 * width : width;
  const auto options = torch::TensorOptions(request.device).dtype(request.type);
  const auto x_bcu = torch::randn({s.batch, s.context, up_width}, options).requires_grad_(true),
             dy_bch = torch::randn({s.batch, s.context, width}, options);
  const auto bias_u = torch::randn({up_width}, options.dtype(torch::kFloat)).requires_grad_(true);
  const auto by_kernel = [=] {
    const auto y_bch = gated ? gate(SiluConfig{}, x_bcu, bias_u) : activate(GeluConfig{}, x_bcu, bias_u);
    torch::autograd::grad({y_bch}, {x_bcu, bias_u}, {dy_bch});
  };
  const auto by_operators = [=] {
    const auto parts = x_bcu.chunk(gated ? 2 : 1, 2);
    const auto y_bch = gated ? torch::silu(parts[0]) * parts[1] : torch::gelu(x_bcu);
    const auto dx_bcu = torch::autograd::grad({y_bch}, {x_bcu}, {dy_bch}).front();
    return dx_bcu.sum(torch::IntArrayRef{0, 1}).to(torch::kFloat);
  };
  return {gated ? "bias and gated silu" : "bias and gelu", by_kernel, by_operators};
}

// The rotation of queries as they lie in a projection.
WorkPair rotary_pair(const KernelRequest& request) {
  const auto& s = request.shape;
  const auto options = torch::TensorOptions(request.device).dtype(request.type);
  const auto heads_of = [&](const Tensor& x_bcd) {
    return x_bcd.view({s.batch, s.context, s.heads, s.head_width}).transpose(1, 2);
  };
  const auto q_bnck = heads_of(torch::randn({s.batch, s.context, s.width()}, options)).requires_grad_(true),
             dy_bnck = heads_of(torch::randn({s.batch, s.context, s.width()}, options));
  const auto tables_2cr = rotary_tables_2cr({}, s.head_width, s.context).to(request.device, torch::kFloat);
  const auto cos_cr = tables_2cr[0], sin_cr = tables_2cr[1];
  const auto cos = cos_cr.to(request.type), sin = sin_cr.to(request.type);
  const auto by_kernel = [=] { torch::autograd::grad({rotate_pairs(q_bnck, cos_cr, sin_cr)}, {q_bnck}, {dy_bnck}); };
  const auto by_operators = [=] {
    const auto halves = q_bnck.chunk(2, 3);
    const auto y_bnck = torch::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, 3);
    torch::autograd::grad({y_bnck}, {q_bnck}, {dy_bnck});
  };
  return {"rotary positions", by_kernel, by_operators};
}

// Metric attention with a causal mask and values of its own, with the short backward pass and with the usual one of the
// fused kernels; nullopt if the shape has no short one.
std::optional<WorkPair> short_backward_pair(const KernelRequest& request) {
  const auto& s = request.shape;
  const auto options = torch::TensorOptions(request.device).dtype(request.type);
  const auto heads = [&] { return torch::randn({s.batch, s.context, s.heads, s.head_width}, options).transpose(1, 2); };
  const auto p_bnck = heads().requires_grad_(true), value_bnck = heads().requires_grad_(true), dt_bnck = heads();
  const auto metric_nkk = torch::randn({s.heads, s.head_width, s.head_width}, options.dtype(torch::kFloat))
                              .div_(static_cast<double>(s.head_width))
                              .requires_grad_(true);
  const MetricVectors vectors{p_bnck, p_bnck, value_bnck};
  if (!fused_metric_obstacle(vectors, metric_nkk).empty() || !has_short_backward(vectors, /*distance=*/false))
    return std::nullopt;
  const auto with = [=](bool short_backward) {
    return [=] {
      Pass pass;
      const auto t_bnck =
          fused_metric_attention(vectors, metric_nkk, {.causal = true, .short_backward = short_backward}, pass);
      torch::autograd::grad({t_bnck}, {p_bnck, value_bnck, metric_nkk}, {dt_bnck});
    };
  };
  return WorkPair{"metric attention with the short backward pass", with(true), with(false)};
}

// Vectors of tokens of which few are frequent, and the gradient of the table.
WorkPair embedding_pair(const KernelRequest& request, std::int64_t vocabulary) {
  const auto& s = request.shape;
  const auto floats = torch::TensorOptions(request.device).dtype(torch::kFloat);
  const auto table_vd = torch::randn({vocabulary, s.width()}, floats).requires_grad_(true);
  const auto ids_bc =
      (torch::rand({s.batch, s.context}, floats).pow(3) * vocabulary).to(torch::kLong).clamp_max(vocabulary - 1);
  const auto dy_bcd = torch::randn({s.batch, s.context, s.width()}, floats);
  const auto with = [=](const auto& embedded) {
    return [=] { torch::autograd::grad({embedded(table_vd, ids_bc)}, {table_vd}, {dy_bcd}); };
  };
  return {fmt::format("embedding of {} tokens", vocabulary),
          with([](const Tensor& table, const Tensor& ids) { return embed(table, ids); }),
          with([](const Tensor& table, const Tensor& ids) { return torch::embedding(table, ids); })};
}

// The loss and the gradient of the logits, from logits in the type of the products to a mean over the tokens.
WorkPair loss_pair(const KernelRequest& request, std::int64_t vocabulary) {
  const auto tokens = request.shape.batch * request.shape.context;
  const auto logits_tv =
      torch::randn({tokens, vocabulary}, torch::TensorOptions(request.device).dtype(request.type)).requires_grad_(true);
  const auto targets_t = torch::arange(tokens, torch::TensorOptions(request.device).dtype(torch::kLong)) % vocabulary;
  const auto count =
      torch::full({}, static_cast<double>(tokens), torch::TensorOptions(request.device).dtype(torch::kFloat));
  const auto backward = [=](const Tensor& loss) { torch::autograd::grad({loss / count}, {logits_tv}); };
  return {
      fmt::format("cross-entropy of {} tokens", vocabulary),
      [=] {
        const ExpectedLossGradient expected([&] { return torch::ones_like(count) / count; });
        backward(cross_entropy_sum(logits_tv, targets_t));
      },
      [=] { backward(at::cross_entropy_loss(logits_tv.to(torch::kFloat), targets_t, {}, at::Reduction::Sum, -1)); }};
}

// Both passes of the feed-forward branch's first layer under autocast: on the copy of its weight and bias, and with
// casts of both and of their gradients.
WorkPair linear_pair(const KernelRequest& request) {
  const auto floats = torch::TensorOptions(request.device).dtype(torch::kFloat);
  const auto width = request.shape.width(), outputs = 4 * width, count = outputs * width;
  const auto values = torch::randn({count + outputs}, floats);
  const auto weight_oi = values.narrow(0, 0, count).view({outputs, width}).detach().requires_grad_(true),
             bias_o = values.narrow(0, count, outputs).detach().requires_grad_(true);
  const auto half = std::make_shared<HalfWeights>(
      values, std::vector<HalfWeights::Part>{{weight_oi, 0, count}, {bias_o, count, outputs}}, request.type);
  half->refresh();
  const auto x_bcd = torch::randn({request.shape.batch, request.shape.context, width}, floats.dtype(request.type))
                         .requires_grad_(true);
  const auto dy_bch = torch::randn({request.shape.batch, request.shape.context, outputs}, floats.dtype(request.type));
  const auto precision = request.type == torch::kHalf ? Precision::fp16 : Precision::bf16;
  const auto run = [=](const auto& product) {
    const AutocastScope autocast(precision, request.device);
    torch::autograd::grad({product(x_bcd, weight_oi, bias_o)}, {x_bcd, weight_oi, bias_o}, {dy_bch});
  };
  const auto by_library = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return torch::linear(x, weight, bias);
  };
  return {fmt::format("linear layer of a copied weight, {} x {}", outputs, width), [run, half] { run(linear_product); },
          [run, by_library] { run(by_library); }};
}

// Weights in the sizes of a model of 6 layers of width 384, in one buffer, with their gradients and moments.
struct Weights {
  static constexpr std::int64_t tensors = 24, count = tensors * 384 * 1152;
  Tensor values, gradients, first_moments, second_moments, steps, rate, factor;
  Tensor copies;  // of the values in 16 bits; undefined: none

  explicit Weights(torch::Device device) {
    const auto floats = torch::TensorOptions(device).dtype(torch::kFloat);
    values = torch::randn({count}, floats);
    gradients = torch::randn({count}, floats);
    first_moments = torch::zeros({count}, floats);
    second_moments = torch::zeros({count}, floats);
    steps = torch::zeros({}, floats);
    rate = torch::full({}, 1e-4, floats);
    factor = torch::ones({}, floats);
  }
};

constexpr double limit = 1, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;

void update_by_kernels(const Weights& w) {
  fused_gradient_norm(w.gradients, {.factor = w.factor, .limit = limit});
  fused_adam({.betas = {beta1, beta2}, .epsilon = epsilon, .factor = w.factor},
             {{.values = w.values,
               .gradients = w.gradients,
               .first_moments = w.first_moments,
               .second_moments = w.second_moments,
               .copies = w.copies,
               .weight_decay = weight_decay}},
             w.steps, w.rate);
}

// The operators of Step::clip_gradients and of the optimiser on other devices.
void update_by_operators(const Weights& w) {
  const torch::NoGradGuard no_grad;
  const auto norm = torch::stack(at::_foreach_norm(w.gradients.chunk(Weights::tensors))).norm();
  const auto factor = (limit / (norm + 1e-6)).clamp_max(1);
  w.gradients.mul_(torch::where(norm.isfinite(), factor, 1.0));
  w.steps.add_(1);
  at::_fused_adamw_({w.values}, {w.gradients}, {w.first_moments}, {w.second_moments}, {}, {w.steps}, w.rate, beta1,
                    beta2, weight_decay, epsilon, /*amsgrad=*/false, /*maximize=*/false);
  if (!w.copies.defined()) return;
  for (const auto& value : w.values.chunk(Weights::tensors)) value.to(w.copies.scalar_type());  // as autocast
}

WorkPair update_pair(const KernelRequest& request, torch::ScalarType of_copies) {
  const bool copies = of_copies != torch::kFloat;
  Weights ours(request.device), library(request.device);
  if (copies) ours.copies = library.copies = torch::empty_like(ours.values, ours.values.options().dtype(of_copies));
  return {copies ? "norm, clipping, AdamW and copies in 16 bits" : "norm, clipping and AdamW",
          [ours] { update_by_kernels(ours); }, [library] { update_by_operators(library); }};
}

}  // namespace

std::vector<KernelResult> bench_step_kernels(const KernelRequest& request) {
  constexpr std::int64_t characters = 65, words = 50257;
  std::vector<KernelResult> results;
  for (const double dropout : {0.0, 0.2})
    results.push_back(measure_in_turn(residual_norm_pair(request, dropout), request));
  for (const bool gated : {false, true}) results.push_back(measure_in_turn(activation_pair(request, gated), request));
  if (request.shape.head_width % 2 == 0) results.push_back(measure_in_turn(rotary_pair(request), request));
  if (const auto pair = short_backward_pair(request)) results.push_back(measure_in_turn(*pair, request));
  for (const auto vocabulary : {characters, words})
    results.push_back(measure_in_turn(embedding_pair(request, vocabulary), request));
  for (const auto vocabulary : {characters, words})
    results.push_back(measure_in_turn(loss_pair(request, vocabulary), request));
  results.push_back(measure_in_turn(update_pair(request, torch::kFloat), request));
  if (request.type == torch::kFloat) return results;
  results.push_back(measure_in_turn(update_pair(request, request.type), request));
  results.push_back(measure_in_turn(linear_pair(request), request));
  return results;
}

}  // namespace metaformer
