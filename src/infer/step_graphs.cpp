#include "infer/step_graphs.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"

namespace metaformer {

std::optional<DeviceGenerationPlan> plan_with_graphs(DeviceGenerationPlan plan, const SequenceModel& model,
                                                     torch::Device device) {
  if (!plan.make_graph && device.is_cuda()) plan.make_graph = make_cuda_graph;
  return plan.make_graph && model.has_recordable_steps() ? std::optional(std::move(plan)) : std::nullopt;
}

StepGraphs::StepGraphs(std::function<void(std::int64_t)> compute, std::int64_t longest, torch::Device device,
                       DeviceGenerationPlan plan)
    : compute_(std::move(compute)), device_(device), plan_(std::move(plan)) {
  for (auto tokens = plan_.smallest_bucket; tokens < longest; tokens *= 2) buckets_.push_back({.tokens = tokens});
  buckets_.push_back({.tokens = longest});
}

std::int64_t StepGraphs::next_chunk(std::int64_t most) {
  chunk_ = chunk_ == 0 ? plan_.first_chunk : std::min(2 * chunk_, plan_.longest_chunk);
  return std::min(chunk_, most);
}

std::int64_t StepGraphs::run(std::int64_t length, std::int64_t count) {
  std::int64_t done = 0;
  try {
    for (; done < count; ++done) step(length + done);
  } catch (const c10::Error& error) {
    const std::string problem = error.what_without_backtrace();
    static std::atomic<bool> reported = false;  // once in a process, which may generate many texts
    if (!reported.exchange(true))
      log::warning("generation cannot be recorded as CUDA graphs, so the host starts its operations one by one: {}",
                   problem.substr(0, problem.find('\n')));
    failed_ = true;
  }
  return done;
}

void StepGraphs::step(std::int64_t length) {
  auto& bucket = bucket_for(length);
  if (bucket.steps == 0 || bucket.steps < plan_.steps_to_warm_up) {
    compute_(bucket.tokens);
  } else {
    if (bucket.graph == nullptr) {
      std::string problem;
      auto graph = plan_.make_graph(device_, problem);
      TORCH_CHECK(graph != nullptr, problem);
      graph->capture([this, tokens = bucket.tokens] { compute_(tokens); });
      bucket.graph = std::move(graph);
    }
    bucket.graph->replay();
  }
  ++bucket.steps;
}

StepGraphs::Bucket& StepGraphs::bucket_for(std::int64_t length) {
  // A model makes its tables of positions for the longest sequence so far. A graph reads a table at the address that it
  // had when the graph was recorded, so the first step is that of the longest bucket, which makes the final tables.
  if (buckets_.back().steps == 0) return buckets_.back();
  for (auto& bucket : buckets_)
    if (bucket.tokens >= length) return bucket;
  return buckets_.back();  // an endless state attends to no tokens
}

}  // namespace metaformer
