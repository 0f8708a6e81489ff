#include "bench/attention_bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/SDPBackend.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ranges>
#include <utility>

#include "attention/lsh.h"
#include "attention/mixer.h"
#include "attention/score_attention.h"
#include "attention/score_positions.h"
#include "base/signals.h"
#include "base/text.h"
#include "model/memory_estimate.h"
#include "model/parameters.h"
#include "ops/attention.h"
#include "ops/fused_metric.h"
#include "ops/library_metric.h"

namespace metaformer {

namespace {

using torch::Tensor;

double root(std::int64_t x) { return std::sqrt(static_cast<double>(x)); }

ScoreMixing mixing_of(const Tensor& p_bnck) { return {.scale = 1 / root(p_bnck.size(3))}; }

// p M, as the mixers compute it.
Tensor image_of(const Tensor& p_bnck, const Tensor& form) {
  if (!form.defined()) return p_bnck;
  return form.dim() == 3 ? per_head_product(p_bnck, form) : p_bnck * form.unsqueeze(1).to(p_bnck.scalar_type());
}

Tensor dense(const Tensor& form, const Tensor& p_bnck) {
  if (!form.defined()) return torch::eye(p_bnck.size(3), p_bnck.options()).repeat({p_bnck.size(1), 1, 1});
  return form.dim() == 3 ? form : torch::diag_embed(form);
}

// Metric attention whose scores are computed as the formula is written.
Tensor reference_metric(const Tensor& p_bnck, const Tensor& value_bnck, const Tensor& form, bool distance,
                        const Visibility& visibility) {
  const auto form_nkk = dense(form, p_bnck).to(p_bnck.scalar_type());
  Tensor score_bnce;
  if (distance) {
    const auto difference = p_bnck.unsqueeze(3) - p_bnck.unsqueeze(2);
    score_bnce = -torch::einsum("bncek,nkj,bncej->bnce", {difference, form_nkk, difference});
  } else {
    score_bnce = torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, form_nkk, p_bnck});
  }
  Pass pass;
  return mix_by_scores(score_bnce, p_bnck, value_bnck, visibility, mixing_of(p_bnck), pass);
}

// A distance, composed as in attention/form_attention.cpp but without positions: 2 p_c M p_e - p_e M p_e, in float32 at
// least.
Tensor composed_distance(const Tensor& given_bnck, const Tensor& value_bnck, const Tensor& form,
                         const Visibility& visibility) {
  const auto given = given_bnck.scalar_type();
  const bool narrow = given == torch::kBFloat16 || given == torch::kHalf;
  const auto p_bnck = narrow ? given_bnck.to(torch::kFloat) : given_bnck;
  const auto image_bnck = image_of(p_bnck, form);
  const auto length_bnc1 = (image_bnck * p_bnck).sum(-1, true);
  Pass pass;
  return attend_with_key_term(2 * image_bnck, p_bnck, -length_bnc1, value_bnck.to(p_bnck.scalar_type()), visibility,
                              mixing_of(p_bnck), Backend::composed, pass)
      .to(given);
}

// If the values are p, they are loaded once.
Tensor fused(const Tensor& p_bnck, const Tensor& value_bnck, const Tensor& form, bool distance,
             const Visibility& visibility, bool short_backward = false) {
  Pass pass;
  return fused_metric_attention({p_bnck, p_bnck, value_bnck.is_same(p_bnck) ? Tensor() : value_bnck}, form,
                                {.distance = distance,
                                 .causal = visibility.causal,
                                 .query_segment_bc = visibility.query_segment_bc,
                                 .key_segment_be = visibility.key_segment_be,
                                 .scale = mixing_of(p_bnck).scale,
                                 .short_backward = short_backward},
                                pass);
}

// The core of a mixer, between its projections and its output: t_bnck.
Tensor mix_core(const ScaledDotProductOptions& options, const CoreInputs& in, const Visibility& visibility) {
  Pass pass;
  return attend(in[0], in[1], in[2], visibility, mixing_of(in[0]), options.backend, pass);
}

// The inputs are p, a form unless it is the identity, and the mixer's own values if it has them (draw_core_inputs).
template <class Options>
const Tensor& values_in(const Options& options, const CoreInputs& in) {
  return options.values == MixerValues::own ? in.back() : in[0];
}
template <class Options>
Tensor form_in(const Options& options, const CoreInputs& in) {
  const std::size_t vectors = options.values == MixerValues::own ? 2 : 1;
  return in.size() > vectors ? in[1] : Tensor();
}

template <class Options>
bool is_distance(const Options& options) {
  if constexpr (requires { options.score; }) return options.score == MetricScore::distance;
  return false;
}

Tensor mix_core(const MetricOptions& options, const CoreInputs& in, const Visibility& visibility) {
  const auto &p_bnck = in[0], &value_bnck = values_in(options, in);
  const auto form = form_in(options, in);
  const bool distance = is_distance(options);
  if (options.backend == Backend::fused) return fused(p_bnck, value_bnck, form, distance, visibility);
  if (options.backend == Backend::reference) return reference_metric(p_bnck, value_bnck, form, distance, visibility);
  if (distance) return composed_distance(p_bnck, value_bnck, form, visibility);
  Pass pass;
  return attend(image_of(p_bnck, form), p_bnck, value_bnck, visibility, mixing_of(p_bnck), options.backend, pass);
}

Tensor mix_core(const QuadraticOptions& options, const CoreInputs& in, const Visibility& visibility) {
  const bool full = options.form == QuadraticForm::full;
  const auto &p_bnck = full ? in[1] : in[0], &form = full ? in[2] : in[1];
  const auto& value_bnck = full ? p_bnck : values_in(options, in);
  if (!full && options.backend == Backend::fused)
    return fused(p_bnck, value_bnck, form, /*distance=*/false, visibility);
  const auto key = full ? in[0].unsqueeze(1).expand({-1, p_bnck.size(1), -1, -1}) : p_bnck;
  const auto query = per_head_product(key, form);
  Pass pass;
  return attend(query, key.to(query.scalar_type()), value_bnck, visibility, mixing_of(p_bnck), options.backend, pass);
}

// The core by LibTorch's attention with kernels around it, for a p that is the projection without a norm.
template <class Options>
Tensor mix_around_library(const Options& options, const CoreInputs& in, const Visibility& visibility) {
  const auto& p_bnck = in[0];
  const bool own_values = options.values == MixerValues::own;
  auto projected_bcd = merge_heads(p_bnck);
  if (own_values) projected_bcd = torch::cat({projected_bcd, merge_heads(in.back())}, 2);
  return merge_heads(library_metric_attention(projected_bcd, /*gain_k=*/{}, form_in(options, in),
                                              {.heads = p_bnck.size(1),
                                               .own_values = own_values,
                                               .causal = visibility.causal,
                                               .scale = mixing_of(p_bnck).scale}));
}

// The core by the fused kernels with their short backward pass.
template <class Options>
Tensor mix_with_short_backward(const Options& options, const CoreInputs& in, const Visibility& visibility) {
  return merge_heads(fused(in[0], values_in(options, in), form_in(options, in), is_distance(options), visibility,
                           /*short_backward=*/true));
}

// Whether these inputs have that pass.
template <class Options>
bool can_go_back_shortly(const Options& options, const CoreInputs& in) {
  if constexpr (requires { options.values; }) {
    const auto& values = values_in(options, in);
    return has_short_backward({in[0], in[0], values.is_same(in[0]) ? Tensor() : values}, is_distance(options));
  }
  return false;
}

// mix(options, inputs, visibility) for a mixer with a form.
template <class Mix>
CoreMix core_of_form(const MixerConfig& mixer, const Mix& mix) {
  return std::visit(
      [&]<class Options>(const Options& options) -> CoreMix {
        if constexpr (requires { options.values; })
          return [options, mix](const CoreInputs& in, const Visibility& seen) { return mix(options, in, seen); };
        return nullptr;
      },
      mixer);
}
CoreMix around_library(const MixerConfig& mixer) {
  return core_of_form(mixer, [](const auto& options, const CoreInputs& in, const Visibility& seen) {
    return mix_around_library(options, in, seen);
  });
}
CoreMix with_short_backward(const MixerConfig& mixer) {
  return core_of_form(mixer, [](const auto& options, const CoreInputs& in, const Visibility& seen) {
    return mix_with_short_backward(options, in, seen);
  });
}

Tensor mix_core(const LshOptions& options, const CoreInputs& in, const Visibility& visibility) {
  Pass pass;
  return hash_and_attend(in[0], in[1], options, in[0].size(2), /*dropout=*/0, visibility, pass);
}

// The form, scaled so that it has this norm for every head.
Tensor to_norm(const Tensor& form, double norm) {
  const auto flat = form.flatten(1);
  return (flat * (norm / flat.norm(2, 1, true))).view_as(form);
}

// M or m of a metric whose scores have the standard deviation 1; nothing for the identity.
CoreInputs draw_metric_form(const MetricOptions& options, const AttentionShape& shape, NormalDraws& draws) {
  const auto n = shape.heads, k = shape.head_width;
  const bool distance = options.score == MetricScore::distance;
  const double norm = root(k) / (distance ? std::sqrt(6.0) : 1);  // docs/architecture.md, "Randomness"
  if (options.constraint == MetricConstraint::identity) return {};
  if (options.constraint == MetricConstraint::diagonal) {
    const auto diagonal_nk = draws.draw({n, k});
    return {to_norm(distance ? diagonal_nk.abs() : diagonal_nk, norm)};
  }
  const auto factor_nkk = draws.draw({n, k, k}), transposed_nkk = factor_nkk.transpose(1, 2);
  const bool psd = options.constraint == MetricConstraint::psd;
  return {to_norm(psd ? torch::bmm(factor_nkk, transposed_nkk) : factor_nkk + transposed_nkk, norm)};
}

MixerCost layer_cost(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  const auto b = static_cast<double>(shape.batch), c = static_cast<double>(shape.context);
  return cost_of(
      mixer, shape.mixer_shape(),
      {.context = shape.context, .tokens = b * c, .pairs = b * (causal ? c * (c + 1) / 2 : c * c), .causal = causal});
}

// One backend of LibTorch's scaled dot product attention, in place of the backend that it would choose.
struct LibraryBackend {
  const char* name;
  at::SDPBackend backend;
  bool keeps_pairs;  // has the matrix of scores in memory
};
constexpr std::array library_backends = {
    LibraryBackend{"library_cudnn", at::SDPBackend::cudnn_attention, false},
    LibraryBackend{"library_flash", at::SDPBackend::flash_attention, false},
    LibraryBackend{"library_memory_efficient", at::SDPBackend::efficient_attention, false},
    LibraryBackend{"library_math", at::SDPBackend::math, true}};

// Until the result is destroyed, the library uses only this backend.
auto only_backend(at::SDPBackend backend) {
  auto& context = at::globalContext();
  const auto set = [&context](const std::array<bool, 5>& enabled) {
    context.setSDPUseCuDNN(enabled[0]);
    context.setSDPUseFlash(enabled[1]);
    context.setSDPUseMemEfficient(enabled[2]);
    context.setSDPUseMath(enabled[3]);
    context.setSDPUseOverrideable(enabled[4]);
  };
  const std::array before = {context.userEnabledCuDNNSDP(), context.userEnabledFlashSDP(),
                             context.userEnabledMemEfficientSDP(), context.userEnabledMathSDP(),
                             context.userEnabledOverrideableSDP()};
  set({backend == at::SDPBackend::cudnn_attention, backend == at::SDPBackend::flash_attention,
       backend == at::SDPBackend::efficient_attention, backend == at::SDPBackend::math, false});
  return c10::make_scope_exit([=] { set(before); });
}

// Suppresses the library's warnings on why it cannot use a backend for these inputs: here that is a valid answer.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Whether the backend exists for this device, type and shape; with gradients if an input requires them.
bool library_can(const LibraryBackend& backend, const CoreInputs& qkv, bool causal) {
  NoWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard without_warnings(&silent);
  const auto only = only_backend(backend.backend);
  try {
    const auto chosen = at::_fused_sdp_choice(qkv[0], qkv[1], qkv[2], {}, 0, causal, mixing_of(qkv[0]).scale);
    return chosen == static_cast<std::int64_t>(backend.backend);
  } catch (const c10::Error&) {  // no backend at all
    return false;
  }
}

// A mixer and backend of a request at one shape, with its inputs.
struct AttentionCandidate {
  AttentionResult result;                   // mixer, backend, shape, error, and why it is skipped
  double operations = 0;                    // of a forward call
  std::function<Tensor()> forward = {};     // if it is not skipped
  std::vector<Tensor> differentiated = {};  // the inputs of a core; empty for a layer
  Tensor dy = {};
  std::vector<WorkTimer> timers = {};  // for direction backward also one of the forward pass
  std::vector<double> times = {};      // ms, by round

  // Forward and, if the direction asks for it, backward. Gradients of a layer are added to those of its parameters, as
  // in training; gradients of a core's inputs are not kept, so that no sum of large tensors is measured.
  void run(Direction direction) const {
    const torch::AutoGradMode with_gradients(direction != Direction::forward);
    go_back(forward());
  }
  void run_forward_of_training() const {
    const torch::AutoGradMode with_gradients(true);
    forward();
  }
  double milliseconds() {
    const double ms = timers[0].milliseconds();
    return timers.size() == 1 ? ms : ms - timers[1].milliseconds();
  }
  void go_back(const Tensor& y) const {
    if (!y.requires_grad()) return;  // the mixer `none` gives a constant
    if (differentiated.empty()) return y.backward(dy);
    torch::autograd::grad({y}, differentiated, {dy}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                          /*allow_unused=*/true);
  }
};

// Why the mixer cannot be measured; "" if it can.
std::string problem_with(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  if (causal && !can_be_causal(mixer)) return "this mixer reads all tokens: measure it with --all-pairs";
  if (act_on_scores(shape.positions) && !has_scores(mixer))
    return fmt::format("this mixer has no scores for positions {}", kind_of(shape.positions));
  const auto problem = problem_of(mixer, shape.mixer_shape());
  return problem ? problem->what : "";
}

Tensor forward_layer(Mixer& mixer, const Tensor& x_bcd, const Visibility& visibility) {
  Pass pass;
  return mixer.forward(x_bcd, x_bcd, visibility, nullptr, pass);
}

// The relative error of `given`, on any device; nothing if `expected` is 0.
std::optional<double> relative_error(const Tensor& given, const Tensor& expected) {
  const double size = expected.norm().item<double>();
  if (size == 0) return std::nullopt;
  return (given.to(torch::kCPU, torch::kDouble) - expected).norm().item<double>() / size;
}

// All candidates of one shape.
class ShapeBench {
 public:
  ShapeBench(const AttentionRequest& request, const AttentionShape& shape, NormalDraws& draws, const ShowLine& progress)
      : request_(request), shape_(shape), draws_(draws), progress_(progress) {
    for (const auto& mixer : request.mixers) request.core ? add_core(mixer) : add_layer(mixer);
    for (const auto& mixer : request.around_library)
      fill_core(start(mixer, "library"), mixer, around_library(mixer),
                leaves(draw_core_inputs(mixer, shape_, draws_).value()), /*keeps_pairs=*/false);
    for (const auto& mixer : request.short_backward) add_short_backward(mixer);
    if (request.core && request.library) add_library();
    if (request.pair_table) add_pair_table();
    bytes_left_ = usable_memory();
  }

  std::vector<AttentionResult> run() {
    auto present = candidates_ | std::views::filter([](const auto& of) { return of.result.skipped.empty(); });
    for (auto& candidate : present) measure_memory(candidate);
    for (auto& candidate : present) add_timers(candidate);
    for (std::int64_t round = 0; round < request_.rounds; ++round)
      for (auto& candidate : present) candidate.times.push_back(candidate.milliseconds());
    for (auto& candidate : present) {
      auto& result = candidate.result;
      result.ms = median(candidate.times);
      result.timed_by = candidate.timers[0].timed_by();
      constexpr std::array passes = {3, 1, 2};  // both, forward, backward
      const double operations = candidate.operations * passes[static_cast<std::size_t>(request_.direction)];
      result.teraflops = result.ms > 0 ? operations / result.ms * 1e-9 : 0;
    }
    std::vector<AttentionResult> results;
    for (auto& candidate : candidates_) results.push_back(std::move(candidate.result));
    return results;
  }

 private:
  AttentionCandidate& start(const MixerConfig& options, std::string_view backend) {
    candidates_.push_back({.result = {.mixer = std::string(kind_of(options)), .backend = std::string(backend)}});
    candidates_.back().result.shape = shape_;
    return candidates_.back();
  }

  // A fraction of the memory: the machine stays usable and does not swap.
  double usable_memory() const {
    return 0.4 * static_cast<double>(request_.device.is_cpu()
                                         ? machine_memory()
                                         : at::accelerator::getMemoryInfo(request_.device.index()).first);
  }
  double element_bytes() const { return static_cast<double>(c10::elementSize(request_.type)); }

  bool fits(AttentionCandidate& candidate, double bytes, const std::string& what) const {
    if (bytes < usable_memory()) return true;
    candidate.result.predicted_bytes = bytes;
    candidate.result.skipped = fmt::format("{} of {}", what, human_bytes(static_cast<std::uint64_t>(bytes)));
    return false;
  }
  bool pairs_fit(AttentionCandidate& candidate) const {
    const auto pairs = static_cast<double>(shape_.batch * shape_.heads * shape_.context * shape_.context);
    constexpr double copies = 6;  // scores, mask, weights, and their gradients
    return fits(candidate, copies * pairs * element_bytes(), "score matrices");
  }

  Tensor leaf(const Tensor& drawn) const {
    return drawn.to(request_.device, request_.type).detach().requires_grad_(request_.direction != Direction::forward);
  }
  CoreInputs leaves(const CoreInputs& drawn) const {
    CoreInputs inputs;
    for (const auto& tensor : drawn) inputs.push_back(leaf(tensor));
    return inputs;
  }
  Tensor random(std::int64_t batch) {
    return draws_.draw({batch, shape_.context, shape_.width()}).to(request_.device, request_.type);
  }

  Visibility visibility() const { return self_visibility(request_.causal, {}); }

  // The visibility with the tensors that the layer's positions need, of the type of `like`.
  Visibility layer_visibility(const Tensor& like) const {
    auto seen = visibility();
    const auto& positions = shape_.positions;
    if (const auto bias = make_score_bias(positions, shape_.heads, request_.causal)) {
      const torch::NoGradGuard no_grad;
      bias->to(like.device(), like.scalar_type());
      seen.score_bias_nce = bias->forward(offset_ce(shape_.context, shape_.context, like.device()));
    }
    if (is<TransformerXlPositionsConfig>(positions))
      seen.distance_ld = DistanceTable(shape_.width(), /*clamp_length=*/0)
                             .rows_ld(shape_.context, shape_.context, request_.causal, like);
    return seen;
  }

  // With positions transformer_xl, only the CPU computes attention without the matrix of scores.
  bool keeps_pairs(const MixerConfig& options) const {
    return layer_cost(options, shape_, request_.causal).keeps_pairs ||
           (is<TransformerXlPositionsConfig>(shape_.positions) && !request_.device.is_cpu());
  }

  void add_layer(const MixerConfig& options) {
    auto& candidate = start(options, to_string(backend_of(options)));
    candidate.result.skipped = problem_with(options, shape_, request_.causal);
    if (!candidate.result.skipped.empty() || (keeps_pairs(options) && !pairs_fit(candidate))) return;
    const auto mixer = make_mixer(options, shape_.mixer_shape());
    initialise(*mixer, 1, static_cast<double>(shape_.width()) * usual_std * usual_std);
    if (affords_reference()) candidate.result.error = error_of_layer(*mixer, options);
    mixer->to(request_.device, request_.type);
    const auto x = leaf(random(shape_.batch));
    candidate.operations = forward_operations(options, shape_, request_.causal);
    candidate.forward = [mixer, x, seen = layer_visibility(x)] { return forward_layer(*mixer, x, seen); };
    candidate.dy = random(shape_.batch);
  }

  bool affords_reference() const { return shape_.context <= 1024; }

  // The error of the output for one sequence, against the reference backend in float64 on the CPU.
  std::optional<double> error_of_layer(Mixer& mixer, const MixerConfig& options) {
    const torch::NoGradGuard no_grad;
    const auto exact = make_mixer(with_backend(options, Backend::reference), shape_.mixer_shape()),
               narrow = make_mixer(options, shape_.mixer_shape());
    const auto from = mixer.parameters();
    for (const auto& copy : {exact, narrow}) {
      const auto to = copy->parameters();
      for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    }
    exact->to(torch::kDouble);
    narrow->to(request_.device, request_.type);
    const auto x = random(1);
    const auto wide = x.to(torch::kCPU, torch::kDouble);
    const auto expected = forward_layer(*exact, wide, layer_visibility(wide));
    return relative_error(forward_layer(*narrow, x, layer_visibility(x)), expected);
  }

  void add_core(const MixerConfig& options) {
    auto& candidate = start(options, to_string(backend_of(options)));
    candidate.result.skipped = problem_with(options, shape_, request_.causal);
    if (!candidate.result.skipped.empty()) return;
    if (const auto drawn = draw_core_inputs(options, shape_, draws_))
      fill_core(candidate, options, make_core_mix(options, shape_), leaves(*drawn), keeps_pairs(options));
    else
      candidate.result.skipped = "the benchmark does not know the core of this mixer";
  }

  void fill_core(AttentionCandidate& candidate, const MixerConfig& options, const CoreMix& mix,
                 const CoreInputs& inputs, bool keeps_pairs) {
    if (keeps_pairs && !pairs_fit(candidate)) return;
    if (affords_reference()) candidate.result.error = error_of_core(options, mix);
    candidate.operations =
        forward_operations(options, shape_, request_.causal) - projection_operations(options, shape_);
    candidate.forward = [mix, inputs, seen = visibility()] { return mix(inputs, seen); };
    candidate.differentiated = inputs;
    candidate.dy = random(shape_.batch);
  }

  void add_short_backward(const MixerConfig& mixer) {
    auto& candidate = start(mixer, "fused_short");
    const auto inputs = leaves(draw_core_inputs(mixer, shape_, draws_).value());
    if (std::visit([&](const auto& options) { return can_go_back_shortly(options, inputs); }, mixer))
      fill_core(candidate, mixer, with_short_backward(mixer), inputs, /*keeps_pairs=*/false);
    else
      candidate.result.skipped = "the device has no short backward pass of this shape and precision";
  }

  void add_library() {
    const MixerConfig options = ScaledDotProductOptions{.backend = Backend::composed};
    const auto inputs = leaves(draw_core_inputs(options, shape_, draws_).value());
    for (const auto& backend : library_backends) {
      if (!library_can(backend, inputs, request_.causal)) continue;
      const auto mix = [&backend](const CoreInputs& in, const Visibility& seen) {
        const auto only = only_backend(backend.backend);
        const double scale = mixing_of(in[0]).scale;
        return merge_heads(at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, seen.causal, scale));
      };
      fill_core(start(options, backend.name), options, mix, inputs, backend.keeps_pairs);
    }
  }

  // The error of the output for one sequence, against the reference backend in float64 on the CPU, from the same
  // inputs.
  std::optional<double> error_of_core(const MixerConfig& options, const CoreMix& mix) {
    const torch::NoGradGuard no_grad;
    auto one = shape_;
    one.batch = 1;
    CoreInputs narrow, wide;
    const auto drawn = draw_core_inputs(options, one, draws_);
    for (const auto& input : drawn.value()) {
      narrow.push_back(input.to(request_.device, request_.type));
      wide.push_back(narrow.back().to(torch::kCPU, torch::kDouble));
    }
    const auto reference = make_core_mix(with_backend(options, Backend::reference), one);
    return relative_error(mix(narrow, visibility()), reference(wide, visibility()));
  }

  // The published algorithm: table, softmax, mix; for a layer also projection and output.
  void add_pair_table() {
    auto& candidate = start(MetricOptions{}, "pair_table");
    const double table = pair_table_bytes(shape_.batch, shape_.heads, shape_.context, shape_.head_width,
                                          static_cast<std::int64_t>(c10::elementSize(request_.type)));
    constexpr double copies = 4;  // of the table's size, while it is made
    if (!fits(candidate, copies * table, "pair tables")) return;
    const auto d = shape_.width(), n = shape_.heads, k = shape_.head_width;
    const auto made = [&](const std::vector<std::int64_t>& sizes) { return leaf(draws_.draw(sizes) * (1 / root(d))); };
    const auto x = leaf(random(shape_.batch)), triangle = made({n, k * (k + 1) / 2});
    const auto mix = [triangle, seen = visibility(), n](const Tensor& p_bcd) {
      const auto p_bnck = split_heads(p_bcd, n);
      Pass pass;
      return merge_heads(
          mix_by_scores(pair_table_scores(p_bnck, triangle), p_bnck, p_bnck, seen, mixing_of(p_bnck), pass));
    };
    candidate.dy = random(shape_.batch);
    if (request_.core) {
      candidate.forward = [=] { return mix(x); };
      candidate.differentiated = {x, triangle};
      return;
    }
    const auto projection = made({d, d}), output = made({d, d});
    candidate.forward = [=] { return torch::matmul(mix(torch::matmul(x, projection)), output); };
  }

  // The first run also warms up.
  void measure_memory(AttentionCandidate& candidate) const {
    throw_if_stopped();
    candidate.run(request_.direction);
    wait_for(request_.device);
    const MemoryMeter meter(request_.device);
    const torch::AutoGradMode with_gradients(request_.direction != Direction::forward);
    const auto y = candidate.forward();
    candidate.result.kept_bytes = meter.current_bytes();
    candidate.go_back(y);
    wait_for(request_.device);
    candidate.result.peak_bytes = meter.peak_bytes();
  }

  void add_timers(AttentionCandidate& candidate) {
    const auto both = [&candidate, direction = request_.direction] { candidate.run(direction); };
    const auto forward = [&candidate] { candidate.run_forward_of_training(); };
    auto& timers = candidate.timers;
    timers.push_back(make_timer(candidate, both));
    if (request_.direction != Direction::backward) return;
    timers.push_back(make_timer(candidate, forward));
    if (timers[0].timed_by() == timers[1].timed_by()) return;
    // Otherwise their difference would include the host's time to launch the work.
    timers.clear();
    timers.emplace_back(request_.device, both, nullptr);
    timers.emplace_back(request_.device, forward, nullptr);
  }

  // The graphs of all candidates keep their memory at once: a candidate that may not fit is timed without one.
  WorkTimer make_timer(const AttentionCandidate& candidate, const std::function<void()>& work) {
    std::string problem;
    std::unique_ptr<DeviceGraph> graph;
    const auto bytes = static_cast<double>(candidate.result.peak_bytes);
    if (request_.make_graph) {
      graph = request_.make_graph();
    } else if (request_.device.is_cuda() && bytes > bytes_left_) {
      problem = "its memory may not fit beside that of the others";
    } else if (request_.device.is_cuda()) {
      bytes_left_ -= bytes;
      graph = make_cuda_graph(request_.device, problem);
    }
    WorkTimer timer(request_.device, work, std::move(graph));
    if (problem.empty()) problem = timer.recording_problem();
    if (!problem.empty())
      progress_(
          fmt::format("{} {} is not timed as a graph: {}", candidate.result.mixer, candidate.result.backend, problem));
    return timer;
  }

  const AttentionRequest& request_;
  const AttentionShape& shape_;
  NormalDraws& draws_;
  const ShowLine& progress_;
  std::vector<AttentionCandidate> candidates_;
  double bytes_left_ = 0;  // for graphs
};

// Sets how the library multiplies float32 on CUDA until the result is destroyed, as training does.
auto float32_products(torch::Device device, bool tf32) {
  auto& context = at::globalContext();
  const bool was_exact = context.float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  const auto set = [&context, device](bool exact) {
    if (device.is_cuda()) context.setFloat32MatmulPrecision(exact ? "highest" : "high");
  };
  set(!tf32);
  return c10::make_scope_exit([=] { set(was_exact); });
}

}  // namespace

NormalDraws::NormalDraws(torch::Device device) : device_(device), generator_(at::detail::createCPUGenerator(1)) {}

Tensor NormalDraws::draw(const std::vector<std::int64_t>& sizes) {
  return device_.is_cpu() ? torch::randn(sizes, generator_)
                          : torch::randn(sizes, torch::TensorOptions().dtype(torch::kFloat).device(device_));
}

std::optional<CoreInputs> draw_core_inputs(const MixerConfig& mixer, const AttentionShape& shape, NormalDraws& draws) {
  const auto inputs = [&] { return draws.draw({shape.batch, shape.context, shape.width()}); };
  const auto vectors = [&] { return split_heads(inputs(), shape.heads).detach(); };
  // W of scores p W p / sqrt(k) with the standard deviation 1; U of x U x / sqrt(k).
  const auto form = [&](std::int64_t side) {
    return draws.draw({shape.heads, side, side}) * (root(shape.head_width) / static_cast<double>(side));
  };
  if (const auto* dot = std::get_if<ScaledDotProductOptions>(&mixer)) {
    if (dot->qk_norm || dot->window > 0 || dot->key_heads(shape.mixer_shape()) != shape.heads || dot->sinks ||
        dot->weights != AttentionWeights::softmax)
      return std::nullopt;
    return CoreInputs{vectors(), vectors(), vectors()};
  }
  if (const auto* metric = std::get_if<MetricOptions>(&mixer)) {
    if (metric->values == MixerValues::unnormalised || metric->qk_norm || metric->fixed_norm ||
        metric->score == MetricScore::as_published)
      return std::nullopt;
    auto drawn = draw_metric_form(*metric, shape, draws);
    drawn.insert(drawn.begin(), vectors());
    if (metric->values == MixerValues::own) drawn.push_back(vectors());
    return drawn;
  }
  if (const auto* quadratic = std::get_if<QuadraticOptions>(&mixer)) {
    if (quadratic->values == MixerValues::unnormalised || quadratic->qk_norm || quadratic->fixed_norm)
      return std::nullopt;
    if (quadratic->values == MixerValues::own) return CoreInputs{vectors(), form(shape.head_width), vectors()};
    if (quadratic->form == QuadraticForm::projected) return CoreInputs{vectors(), form(shape.head_width)};
    return CoreInputs{inputs(), vectors(), form(shape.width())};
  }
  if (is<LshOptions>(mixer)) return CoreInputs{vectors(), vectors()};
  if (!make_mixer(mixer, shape.mixer_shape())->parameters().empty()) return std::nullopt;
  return CoreInputs{inputs()};
}

CoreMix make_core_mix(const MixerConfig& mixer, const AttentionShape& shape) {
  return std::visit(
      [&](const auto& options) -> CoreMix {
        if constexpr (requires { mix_core(options, CoreInputs{}, Visibility{}); })
          return [options](const CoreInputs& in, const Visibility& visibility) {
            return merge_heads(mix_core(options, in, visibility));
          };
        else
          return
              [whole = make_mixer(options, shape.mixer_shape())](const CoreInputs& in, const Visibility& visibility) {
                Pass pass;
                return whole->forward(in[0], in[0], visibility, nullptr, pass);
              };
      },
      mixer);
}

double forward_operations(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  return layer_cost(mixer, shape, causal).operations;
}

double projection_operations(const MixerConfig& mixer, const AttentionShape& shape) {
  double weights = 0;
  for (const auto& module : make_mixer(mixer, shape.mixer_shape())->modules())
    if (const auto* linear = dynamic_cast<const LinearImpl*>(module.get()))
      weights += static_cast<double>(linear->weight().numel());
  return 2 * static_cast<double>(shape.batch * shape.context) * weights;
}

double pair_table_bytes(std::int64_t batch, std::int64_t heads, std::int64_t context, std::int64_t head_width,
                        std::int64_t element_bytes) {
  const auto pairs = [](std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n + 1) / 2; };
  return static_cast<double>(batch * heads * element_bytes) * pairs(context) * pairs(head_width);
}

Tensor pair_table_scores(const Tensor& p_bnck, const Tensor& triangle_nl) {
  const auto context = p_bnck.size(2), width = p_bnck.size(3);
  const auto indices = torch::TensorOptions().dtype(torch::kLong).device(p_bnck.device());
  const auto tokens = torch::tril_indices(context, context, 0, indices),
             features = torch::tril_indices(width, width, 0, indices);
  const auto at = [&](std::int64_t token, std::int64_t feature) {
    return p_bnck.index_select(2, tokens[token]).index_select(3, features[feature]);
  };
  // An off-diagonal entry of M stands for two terms, a diagonal one for one.
  const auto mirrored = (features[0] != features[1]).to(p_bnck.scalar_type());
  const auto table_bnpl = at(0, 0) * at(1, 1) + at(0, 1) * at(1, 0) * mirrored;
  const auto score_bnp = torch::matmul(table_bnpl, triangle_nl.unsqueeze(2)).squeeze(3);
  auto score_bnce = torch::zeros({p_bnck.size(0), p_bnck.size(1), context, context}, p_bnck.options());
  const auto all = torch::indexing::Slice();
  score_bnce.index_put_({all, all, tokens[0], tokens[1]}, score_bnp);
  score_bnce.index_put_({all, all, tokens[1], tokens[0]}, score_bnp);
  return score_bnce;
}

std::vector<AttentionResult> bench_attention(const AttentionRequest& request, const ShowLine& progress) {
  const auto products = float32_products(request.device, request.tf32);
  NormalDraws draws(request.device);
  std::vector<AttentionResult> results;
  for (const auto& shape : request.shapes) {
    for (auto& result : ShapeBench(request, shape, draws, progress).run()) results.push_back(std::move(result));
    progress(fmt::format("batch {}, heads {}, context {}, head width {}", shape.batch, shape.heads, shape.context,
                         shape.head_width));
  }
  return results;
}

}  // namespace metaformer
