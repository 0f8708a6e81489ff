#include "step/make_training_step.h"

#include <fmt/format.h>

#include "base/log.h"
#include "step/gradients.h"
#include "step/graph_training_step.h"

namespace metaformer {

std::unique_ptr<TrainingStep> make_training_step(const StepParts& parts) {
  const auto& train = parts.config.train;
  if (parts.device.is_cuda() && train.cuda_graph) {
    std::string problem;
    if (train.divergence.spikes.threshold > 0)
      problem = "the host watches for spikes (train.divergence.spikes.threshold)";
    if (parts.memory != nullptr && parts.memory->of_pass(0) != nullptr)
      problem = fmt::format("a step goes on from the one before it ({})", order_key(parts.config.model));
    if (parts.group->size() > 1) problem = "several processes share a step";
    if (computes_again(parts.config)) problem = "parts of it are computed again in backward";
    auto graph = problem.empty() ? make_cuda_graph(parts.device, problem) : nullptr;
    if (graph != nullptr) return std::make_unique<GraphTrainingStep>(parts, std::move(graph));
    log::info("steps are not replayed as a CUDA graph: {}", problem);
  }
  return std::make_unique<EagerTrainingStep>(parts);
}

}  // namespace metaformer
