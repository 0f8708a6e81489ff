#include "bench/attention_bench.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include "base/signals.h"
#include "bench/attention_candidates.h"
#include "bench/memory_meter.h"
#include "bench/timing.h"

namespace metaformer {

namespace {

// How the library multiplies float32 on CUDA while it lives, as train/preparation.cpp sets it for a training.
class Float32Products {
 public:
  Float32Products(torch::Device device, bool tf32) : before_(at::globalContext().float32MatmulPrecision()) {
    if (device.is_cuda()) set(tf32 ? at::Float32MatmulPrecision::HIGH : at::Float32MatmulPrecision::HIGHEST);
  }
  Float32Products(const Float32Products&) = delete;
  Float32Products& operator=(const Float32Products&) = delete;
  ~Float32Products() { set(before_); }

 private:
  static void set(at::Float32MatmulPrecision precision) {
    if (at::globalContext().float32MatmulPrecision() == precision) return;
    at::globalContext().setFloat32MatmulPrecision(precision == at::Float32MatmulPrecision::HIGHEST ? "highest"
                                                  : precision == at::Float32MatmulPrecision::HIGH  ? "high"
                                                                                                   : "medium");
  }
  at::Float32MatmulPrecision before_;
};

using Progress = std::function<void(const std::string&)>;

// All candidates of one shape.
class ShapeBench {
 public:
  ShapeBench(const AttentionRequest& request, const AttentionShape& shape, NormalDraws& draws, const Progress& progress)
      : request_(request), progress_(progress), candidates_(make_candidates(request, shape, draws)) {
    if (!request_.device.is_cpu())
      bytes_left_ = 0.4 * static_cast<double>(at::accelerator::getMemoryInfo(request_.device.index()).first);
  }

  std::vector<AttentionResult> run() {
    std::vector<AttentionCandidate*> present;
    for (auto& candidate : candidates_)
      if (candidate.result.skipped.empty()) present.push_back(&candidate);
    for (auto* candidate : present) measure_memory(*candidate);
    std::vector<WorkTimer> timers;
    for (auto* candidate : present) timers.push_back(make_timer(*candidate));
    std::vector<std::vector<double>> times(present.size());
    for (std::int64_t round = 0; round < request_.rounds; ++round)
      for (std::size_t i = 0; i < present.size(); ++i) times[i].push_back(timers[i].milliseconds());
    for (std::size_t i = 0; i < present.size(); ++i) finish(*present[i], median(times[i]), timers[i].timed_by());
    std::vector<AttentionResult> results;
    for (auto& candidate : candidates_) results.push_back(std::move(candidate.result));
    return results;
  }

 private:
  // The first run also warms up.
  void measure_memory(AttentionCandidate& candidate) const {
    throw_if_stopped();
    candidate.run(request_.backward);
    wait_for(request_.device);
    const MemoryMeter meter(request_.device);
    const torch::AutoGradMode with_gradients(request_.backward);
    const auto y = candidate.forward();
    candidate.result.kept_bytes = meter.current_bytes();
    candidate.go_back(y);
    wait_for(request_.device);
    candidate.result.peak_bytes = meter.peak_bytes();
  }

  // Graphs keep their memory, and those of all candidates exist at once: what may not fit is timed without one.
  std::unique_ptr<DeviceGraph> make_graph(const AttentionResult& result, std::string& problem) {
    if (request_.make_graph) return request_.make_graph();
    if (!request_.device.is_cuda()) return nullptr;
    const auto bytes = static_cast<double>(result.peak_bytes);
    if (bytes > bytes_left_) {
      problem = "its memory may not fit beside that of the others";
      return nullptr;
    }
    bytes_left_ -= bytes;
    return make_cuda_graph(request_.device, problem);
  }

  WorkTimer make_timer(const AttentionCandidate& candidate) {
    std::string problem;
    auto graph = make_graph(candidate.result, problem);
    const auto work = [&candidate, backward = request_.backward] { candidate.run(backward); };
    WorkTimer timer(request_.device, work, std::move(graph));
    if (problem.empty()) problem = timer.recording_problem();
    if (!problem.empty())
      progress_(
          fmt::format("{} {} is not timed as a graph: {}", candidate.result.mixer, candidate.result.backend, problem));
    return timer;
  }

  void finish(AttentionCandidate& candidate, double ms, TimedBy timed_by) const {
    auto& result = candidate.result;
    result.ms = ms;
    result.timed_by = timed_by;
    result.teraflops = candidate.operations * (request_.backward ? 3 : 1) / ms * 1e-9;  // backward: twice forward
  }

  const AttentionRequest& request_;
  const Progress& progress_;
  std::vector<AttentionCandidate> candidates_;
  double bytes_left_ = 0;  // for graphs
};

}  // namespace

std::vector<AttentionResult> bench_attention(const AttentionRequest& request,
                                             const std::function<void(const std::string&)>& progress) {
  const Float32Products products(request.device, request.tf32);
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
