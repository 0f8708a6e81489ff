#include "bench/attention_candidates.h"

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "attention/mixer.h"
#include "attention/mixers.h"
#include "attention/scaled_dot_product_options.h"
#include "attention/score_attention.h"
#include "attention/score_bias.h"
#include "attention/transformer_xl.h"
#include "base/text.h"
#include "bench/library_attention.h"
#include "bench/pair_table.h"
#include "model/initialise.h"
#include "model/memory_estimate.h"
#include "ops/heads.h"

namespace metaformer {

namespace {

using torch::Tensor;

MixerShape mixer_shape(const AttentionShape& shape) {
  return {.width = shape.width(), .heads = shape.heads, .context = shape.context, .positions = shape.positions};
}

double inverse_root(std::int64_t width) { return 1 / std::sqrt(static_cast<double>(width)); }

// Why the mixer cannot have them; empty: it can.
std::string positions_problem(const MixerConfig& mixer, const AttentionShape& shape) {
  if (!act_on_scores(shape.positions)) return "";
  if (!mixer->has_scores()) return fmt::format("this mixer has no scores for positions {}", kind_of(shape.positions));
  const auto problem = mixer->problem(mixer_shape(shape));
  return problem ? problem->what : "";
}

Tensor forward_layer(Mixer& mixer, const Tensor& x_bcd, const Visibility& visibility) {
  Pass pass;
  return mixer.forward(x_bcd, x_bcd, visibility, nullptr, pass);
}

// Of `given` on any device; nothing where nothing is expected.
std::optional<double> relative_error(const Tensor& given, const Tensor& expected) {
  const double size = expected.norm().item<double>();
  if (size == 0) return std::nullopt;
  return (given.to(torch::kCPU, torch::kDouble) - expected).norm().item<double>() / size;
}

bool affords_reference(const AttentionShape& shape) { return shape.context <= 1024; }

class Candidates {
 public:
  Candidates(const AttentionRequest& request, const AttentionShape& shape, NormalDraws& draws)
      : request_(request), shape_(shape), draws_(draws) {}

  std::vector<AttentionCandidate> all() {
    for (const auto& mixer : request_.mixers) request_.core ? add_core(mixer) : add_layer(mixer);
    if (request_.core && request_.library) add_library();
    if (request_.pair_table) add_pair_table();
    return std::move(list_);
  }

 private:
  AttentionCandidate& start(const std::string& mixer, const std::string& backend) {
    list_.emplace_back();
    auto& result = list_.back().result;
    result.mixer = mixer;
    result.backend = backend;
    result.shape = shape_;
    return list_.back();
  }

  // A share of the machine, so that the machine stays usable and results are not those of swapping.
  bool fits(AttentionCandidate& candidate, double bytes, const std::string& what) const {
    const double available = request_.device.is_cpu()
                                 ? static_cast<double>(machine_memory())
                                 : static_cast<double>(at::accelerator::getMemoryInfo(request_.device.index()).first);
    if (bytes < 0.4 * available) return true;
    candidate.result.predicted_bytes = bytes;
    candidate.result.skipped = fmt::format("{} of {}", what, human_bytes(static_cast<std::uint64_t>(bytes)));
    return false;
  }
  bool pairs_fit(AttentionCandidate& candidate) const {
    const double matrix = static_cast<double>(shape_.batch * shape_.heads * shape_.context * shape_.context) *
                          static_cast<double>(c10::elementSize(request_.type));
    constexpr double copies = 6;  // scores, mask, weights, and their gradients
    return fits(candidate, copies * matrix, "score matrices");
  }

  torch::TensorOptions tensor_options() const {
    return torch::TensorOptions().dtype(request_.type).device(request_.device);
  }

  Tensor leaf(const Tensor& drawn) const {
    return drawn.to(request_.device, request_.type).detach().requires_grad_(request_.backward);
  }
  CoreInputs leaves(const CoreInputs& drawn) const {
    CoreInputs inputs;
    for (const auto& tensor : drawn) inputs.push_back(leaf(tensor));
    return inputs;
  }
  Tensor random(std::int64_t batch) {
    return draws_.draw({batch, shape_.context, shape_.width()}).to(tensor_options());
  }

  Visibility visibility() const { return self_visibility(request_.causal, {}); }

  // With what positions of the layer's kind need, of the type of `like`.
  Visibility layer_visibility(const Tensor& like) const {
    auto seen = visibility();
    const auto& positions = shape_.positions;
    if (const auto bias = make_score_bias(positions, shape_.heads, request_.causal)) {
      const torch::NoGradGuard no_grad;
      bias->to(like.device(), like.scalar_type());
      seen.score_bias_nce = bias->forward(shape_.context, shape_.context);
    }
    if (is<TransformerXlPositionsConfig>(positions))
      seen.distance_ld = DistanceTable(shape_.width(), /*clamp_length=*/0)
                             .rows_ld(shape_.context, shape_.context, request_.causal, like);
    return seen;
  }

  // Distances are compared without the matrix of scores on the CPU alone.
  bool keeps_pairs(const MixerConfig& options) const {
    return layer_cost(options, shape_, request_.causal).keeps_pairs ||
           (is<TransformerXlPositionsConfig>(shape_.positions) && !request_.device.is_cpu());
  }

  void add_layer(const MixerConfig& options) {
    auto& candidate = start(std::string(kind_of(options)), std::string(to_string(options->backend())));
    candidate.result.skipped = positions_problem(options, shape_);
    if (!candidate.result.skipped.empty() || (keeps_pairs(options) && !pairs_fit(candidate))) return;
    const auto mixer = make_mixer(options, mixer_shape(shape_));
    initialise(*mixer, 1, static_cast<double>(shape_.width()) * usual_std * usual_std);
    if (affords_reference(shape_)) candidate.result.error = error_of_layer(*mixer, options);
    mixer->to(request_.device, request_.type);
    const auto x = leaf(random(shape_.batch));
    candidate.operations = forward_operations(options, shape_, request_.causal);
    candidate.forward = [mixer, x, seen = layer_visibility(x)] { return forward_layer(*mixer, x, seen); };
    candidate.dy = random(shape_.batch);
  }

  // Of the output for the first sequence, against the reference backend in float64 on the CPU.
  std::optional<double> error_of_layer(Mixer& mixer, const MixerConfig& options) {
    const torch::NoGradGuard no_grad;
    const auto exact = make_mixer(with_backend(options, Backend::reference), mixer_shape(shape_)),
               narrow = make_mixer(options, mixer_shape(shape_));
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
    const auto drawn = draw_core_inputs(options, shape_, draws_);
    const double operations =
        forward_operations(options, shape_, request_.causal) - projection_operations(options, shape_);
    auto& candidate = start(std::string(kind_of(options)), std::string(to_string(options->backend())));
    if (!drawn) {
      candidate.result.skipped = "the benchmark does not know the core of this mixer";
      return;
    }
    fill_core(candidate, options, make_core_mix(options, shape_), leaves(*drawn), keeps_pairs(options), operations);
  }

  void fill_core(AttentionCandidate& candidate, const MixerConfig& options, const CoreMix& mix,
                 const CoreInputs& inputs, bool keeps_pairs, double operations) {
    if (keeps_pairs && !pairs_fit(candidate)) return;
    if (affords_reference(shape_)) candidate.result.error = error_of_core(options, mix);
    candidate.operations = operations;
    candidate.forward = [mix, inputs, seen = visibility()] { return mix(inputs, seen); };
    candidate.differentiated = inputs;
    candidate.dy = random(shape_.batch);
  }

  void add_library() {
    const MixerConfig options = ScaledDotProductOptions{.backend = Backend::composed};
    const double operations =
        forward_operations(options, shape_, request_.causal) - projection_operations(options, shape_);
    const auto inputs = leaves(draw_core_inputs(options, shape_, draws_).value());
    const auto scale = inverse_root(shape_.head_width);
    const LibraryInputs given{inputs[0], inputs[1], inputs[2], request_.causal, scale};
    for (const auto& backend : library_backends) {
      if (!library_can(backend, given)) continue;
      const auto mix = [&backend, scale](const CoreInputs& in, const Visibility& seen) {
        return merge_heads(library_attention(backend, {in[0], in[1], in[2], seen.causal, scale}));
      };
      fill_core(start(std::string(kind_of(options)), backend.name), options, mix, inputs, backend.keeps_pairs,
                operations);
    }
  }

  // Of the output for one sequence, against the reference backend in float64 on the CPU, from the same inputs.
  std::optional<double> error_of_core(const MixerConfig& options, const CoreMix& mix) {
    const torch::NoGradGuard no_grad;
    auto one = shape_;
    one.batch = 1;
    CoreInputs narrow, wide;
    const auto drawn = draw_core_inputs(options, one, draws_).value();
    for (const auto& input : drawn) {
      narrow.push_back(input.to(tensor_options()));
      wide.push_back(narrow.back().to(torch::kCPU, torch::kDouble));
    }
    const auto reference = make_core_mix(with_backend(options, Backend::reference), one);
    return relative_error(mix(narrow, visibility()), reference(wide, visibility()));
  }

  // The published algorithm: table, softmax, mix; of a layer with projection and output.
  void add_pair_table() {
    auto& candidate = start("metric", "pair_table");
    const double table = pair_table_bytes(shape_.batch, shape_.heads, shape_.context, shape_.head_width,
                                          static_cast<std::int64_t>(c10::elementSize(request_.type)));
    constexpr double copies = 4;  // of the table's size, while it is made
    if (!fits(candidate, copies * table, "pair tables")) return;
    const auto d = shape_.width(), n = shape_.heads, k = shape_.head_width;
    const auto made = [&](const std::vector<std::int64_t>& sizes) {
      return leaf(draws_.draw(sizes) * inverse_root(d));
    };
    const auto x = leaf(random(shape_.batch)), packed = made({n, k * (k + 1) / 2});
    const auto seen = visibility();
    const auto mix = [packed, seen, n, k](const Tensor& p_bcd) {
      const auto p_bnck = split_heads(p_bcd, n);
      Pass pass;
      return merge_heads(
          mix_by_scores(pair_table_scores(p_bnck, packed), p_bnck, p_bnck, seen, {.scale = inverse_root(k)}, pass));
    };
    candidate.dy = random(shape_.batch);
    if (request_.core) {
      candidate.forward = [=] { return mix(x); };
      candidate.differentiated = {x, packed};
      return;
    }
    const auto projection = made({d, d}), output = made({d, d});
    candidate.forward = [=] { return torch::matmul(mix(torch::matmul(x, projection)), output); };
  }

  const AttentionRequest& request_;
  AttentionShape shape_;
  NormalDraws& draws_;
  std::vector<AttentionCandidate> list_;
};

}  // namespace

void AttentionCandidate::go_back(const Tensor& y) const {
  if (!y.requires_grad()) return;  // the mixer `none` gives a constant
  if (differentiated.empty()) return y.backward(dy);
  torch::autograd::grad({y}, differentiated, {dy}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                        /*allow_unused=*/true);
}

void AttentionCandidate::run(bool backward) const {
  const torch::AutoGradMode with_gradients(backward);
  go_back(forward());
}

std::vector<AttentionCandidate> make_candidates(const AttentionRequest& request, const AttentionShape& shape,
                                                NormalDraws& draws) {
  return Candidates(request, shape, draws).all();
}

}  // namespace metaformer
