#include "bench/attention_bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>

#include "attention/mixer.h"
#include "attention/mixers.h"
#include "attention/score_attention.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "bench/memory_meter.h"
#include "bench/pair_table.h"
#include "bench/timing.h"
#include "model/initialise.h"
#include "model/memory_estimate.h"

namespace metaformer {

namespace {

// One mixer at one shape, ready to run.
struct Candidate {
  std::size_t result = 0;  // its place among the results
  double operations = 0;   // of a forward call
  std::function<torch::Tensor()> forward;
  torch::Tensor dy;
  std::vector<double> times = {};

  void go_back(const torch::Tensor& y) const {
    if (y.requires_grad()) y.backward(dy);  // the mixer `none` gives a constant
  }
  void run(bool backward) const {
    throw_if_stopped();
    const torch::AutoGradMode with_gradients(backward);
    go_back(forward());
  }
};

MixerShape mixer_shape(const AttentionShape& shape) { return {.width = shape.width(), .heads = shape.heads}; }

MixerCost cost_of(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  const auto b = static_cast<double>(shape.batch), c = static_cast<double>(shape.context);
  return mixer->cost(mixer_shape(shape),
                     {.context = shape.context, .tokens = b * c, .pairs = b * (causal ? c * (c + 1) / 2 : c * c)});
}

class Bench {
 public:
  Bench(const AttentionRequest& request, const std::function<void(const std::string&)>& progress)
      : request_(request), progress_(progress) {}

  std::vector<AttentionResult> run() {
    for (const auto& shape : request_.shapes) {
      candidates_.clear();
      for (const auto& mixer : request_.mixers) add(mixer, shape);
      if (request_.pair_table) add_pair_table(shape);
      measure(shape);
    }
    return std::move(results_);
  }

 private:
  AttentionResult& start(const std::string& mixer, const std::string& backend, const AttentionShape& shape) {
    AttentionResult result;
    result.mixer = mixer;
    result.backend = backend;
    result.shape = shape;
    results_.push_back(std::move(result));
    return results_.back();
  }

  // A share of the machine, so that the machine stays usable and results are not those of swapping.
  bool fits(AttentionResult& result, double bytes, const std::string& what) const {
    const double available = request_.device.is_cpu()
                                 ? static_cast<double>(machine_memory())
                                 : static_cast<double>(at::accelerator::getMemoryInfo(request_.device.index()).first);
    if (bytes < 0.4 * available) return true;
    result.predicted_bytes = bytes;
    result.skipped = fmt::format("{} of {}", what, human_bytes(static_cast<std::uint64_t>(bytes)));
    return false;
  }

  static torch::Tensor forward(Mixer& mixer, const torch::Tensor& x, const Visibility& visibility) {
    Pass pass;
    return mixer.forward(x, x, visibility, nullptr, pass);
  }

  torch::Tensor random(const AttentionShape& shape) {
    const auto x = torch::randn({shape.batch, shape.context, shape.width()}, generator_);
    return x.to(torch::TensorOptions().dtype(request_.type).device(request_.device));
  }

  void add(const MixerConfig& options, const AttentionShape& shape) {
    auto& result = start(std::string(kind_of(options)), std::string(to_string(options->backend())), shape);
    const double matrix = static_cast<double>(shape.batch * shape.heads * shape.context * shape.context) *
                          static_cast<double>(c10::elementSize(request_.type));
    constexpr double copies = 6;  // scores, mask, weights, and their gradients
    if (cost_of(options, shape, request_.causal).keeps_pairs && !fits(result, copies * matrix, "score matrices"))
      return;
    const auto mixer = make_mixer(options, mixer_shape(shape));
    initialise(*mixer, 1, static_cast<double>(shape.width()) * usual_std * usual_std);
    result.error = error_of(*mixer, options, shape);
    mixer->to(request_.device, request_.type);
    const auto x = random(shape).requires_grad_(request_.backward);
    const auto visibility = self_visibility(request_.causal, {});
    candidates_.push_back({.result = results_.size() - 1,
                           .operations = forward_operations(options, shape, request_.causal),
                           .forward = [mixer, x, visibility] { return forward(*mixer, x, visibility); },
                           .dy = random(shape)});
  }

  // The published algorithm as a layer: projection, table, softmax, mix, output.
  void add_pair_table(const AttentionShape& shape) {
    auto& result = start("metric", "pair_table", shape);
    const double table = pair_table_bytes(shape.batch, shape.heads, shape.context, shape.head_width,
                                          static_cast<std::int64_t>(c10::elementSize(request_.type)));
    constexpr double copies = 4;  // of the table's size, while it is made
    if (!fits(result, copies * table, "pair tables")) return;
    const auto options = torch::TensorOptions().dtype(request_.type).device(request_.device);
    const auto d = shape.width(), k = shape.head_width;
    const auto made = [&](std::vector<std::int64_t> sizes) {
      return (torch::randn(sizes, generator_) / std::sqrt(static_cast<double>(d)))
          .to(options)
          .requires_grad_(request_.backward);
    };
    const auto projection = made({d, d}), output = made({d, d}), packed = made({shape.heads, k * (k + 1) / 2});
    const auto x = random(shape).requires_grad_(request_.backward);
    const auto visibility = self_visibility(request_.causal, {});
    const auto forward = [=] {
      const auto p_bnck = torch::matmul(x, projection).unflatten(2, {shape.heads, k}).transpose(1, 2);
      Pass pass;
      const auto t_bnck = mix_by_scores(pair_table_scores(p_bnck, packed), p_bnck, p_bnck, visibility,
                                        {.scale = 1 / std::sqrt(static_cast<double>(k))}, pass);
      return torch::matmul(t_bnck.transpose(1, 2).flatten(2), output);
    };
    candidates_.push_back({.result = results_.size() - 1, .forward = forward, .dy = random(shape)});
  }

  // Of the output for the first sequence, against the reference backend in float64 on the CPU.
  std::optional<double> error_of(Mixer& mixer, const MixerConfig& options, const AttentionShape& shape) {
    constexpr std::int64_t affordable = 1024;
    if (shape.context > affordable) return std::nullopt;
    const torch::NoGradGuard no_grad;
    const auto exact = make_mixer(with_backend(options, Backend::reference), mixer_shape(shape)),
               narrow = make_mixer(options, mixer_shape(shape));
    const auto from = mixer.parameters();
    for (const auto& copy : {exact, narrow}) {
      const auto to = copy->parameters();
      for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    }
    exact->to(torch::kDouble);
    narrow->to(request_.device, request_.type);
    const auto x = random({1, shape.heads, shape.context, shape.head_width});
    const auto wide = x.to(torch::kCPU, torch::kDouble);
    const auto visibility = self_visibility(request_.causal, {});
    const auto expected = forward(*exact, wide, visibility);
    const auto given = forward(*narrow, x, visibility).to(torch::kCPU, torch::kDouble);
    const double size_of_expected = expected.norm().item<double>();
    if (size_of_expected == 0) return std::nullopt;
    return (given - expected).norm().item<double>() / size_of_expected;
  }

  void measure(const AttentionShape& shape) {
    for (auto& candidate : candidates_) measure_memory(candidate);
    for (std::int64_t round = 0; round < request_.rounds; ++round) {
      for (auto& candidate : candidates_) {
        candidate.times.push_back(milliseconds_of(request_.device, [&] { candidate.run(request_.backward); }));
      }
    }
    for (const auto& candidate : candidates_) {
      auto& result = results_[candidate.result];
      result.ms = median(candidate.times);
      result.teraflops =
          candidate.operations * (request_.backward ? 3 : 1) / result.ms * 1e-9;  // backward: twice forward
    }
    progress_(fmt::format("batch {}, heads {}, context {}, head width {}", shape.batch, shape.heads, shape.context,
                          shape.head_width));
  }

  // The first run also warms up.
  void measure_memory(Candidate& candidate) {
    candidate.run(request_.backward);
    wait_for(request_.device);
    auto& result = results_[candidate.result];
    const MemoryMeter meter(request_.device);
    const torch::AutoGradMode with_gradients(request_.backward);
    const auto y = candidate.forward();
    result.kept_bytes = meter.current_bytes();
    candidate.go_back(y);
    wait_for(request_.device);
    result.peak_bytes = meter.peak_bytes();
  }

  const AttentionRequest& request_;
  const std::function<void(const std::string&)>& progress_;
  torch::Generator generator_ = at::detail::createCPUGenerator(1);
  std::vector<AttentionResult> results_;
  std::vector<Candidate> candidates_;
};

}  // namespace

double forward_operations(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  return cost_of(mixer, shape, causal).operations;
}

std::vector<AttentionResult> bench_attention(const AttentionRequest& request,
                                             const std::function<void(const std::string&)>& progress) {
  return Bench(request, progress).run();
}

}  // namespace metaformer
