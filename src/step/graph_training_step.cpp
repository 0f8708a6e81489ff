#include "step/graph_training_step.h"

#include <algorithm>

#include "base/log.h"
#include "step/gradients.h"

namespace metaformer {

namespace {

bool have_same_shape(const Batch& a, const Batch& b) {
  const auto of_a = tensors_of(a), of_b = tensors_of(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (of_a[i]->defined() != of_b[i]->defined()) return false;
    if (of_a[i]->defined() && of_a[i]->sizes() != of_b[i]->sizes()) return false;
  }
  return true;
}

torch::Tensor copy(const torch::Tensor& x) { return x.defined() ? x.clone() : x; }

Batch copy_of(const Batch& batch) {
  return {.ids_bc = copy(batch.ids_bc),
          .targets_bc = copy(batch.targets_bc),
          .segments_bc = copy(batch.segments_bc),
          .places_t = copy(batch.places_t),
          .source_ids_bs = copy(batch.source_ids_bs),
          .source_segments_bs = copy(batch.source_segments_bs),
          .labels_l = copy(batch.labels_l),
          .label_rows_l2 = copy(batch.label_rows_l2),
          .target_weights_bc = copy(batch.target_weights_bc),
          .restarts = batch.restarts,
          .first_row = batch.first_row,
          .weight = copy(batch.weight)};
}

}  // namespace

GraphTrainingStep::GraphTrainingStep(const StepParts& parts, std::unique_ptr<DeviceGraph> graph)
    : parts_(parts),
      eager_(parts),
      graph_(std::move(graph)),
      learning_rate_(torch::zeros({}, torch::TensorOptions().dtype(torch::kFloat).device(parts.device))),
      passes_(static_cast<std::uint64_t>(parts.config.train.seed), parts.device) {}

void GraphTrainingStep::time_phases(StepTimes* times) {
  eager_.time_phases(times);
  measures_ = times != nullptr;
}

StepResult GraphTrainingStep::run(std::int64_t step, double learning_rate, const AcceptNorm& accept) {
  constexpr std::int64_t steps_to_warm_up = 3;
  const bool as_it_is = graph_ == nullptr || accept || measures_ || warm_steps_ < steps_to_warm_up;
  if (as_it_is) {
    ++warm_steps_;
    return eager_.run(step, learning_rate, accept);
  }
  const auto batches = training_batches(parts_, step);
  if (!recorded_) {
    for (const auto& batch : batches) batches_.push_back(copy_of(batch));
    record();
  }
  if (!recorded_ || !fit(batches)) return eager_.run(step, learning_rate, accept);
  put_in_place(batches, step, learning_rate);
  graph_->replay();
  return {.loss = copy(result_.loss),
          .gradient_norm = copy(result_.gradient_norm),
          .skipped = copy(result_.skipped),
          .exhausted = copy(result_.exhausted)};
}

bool GraphTrainingStep::fit(const std::vector<Batch>& batches) const {
  return std::equal(batches.begin(), batches.end(), batches_.begin(), batches_.end(), have_same_shape);
}

void GraphTrainingStep::put_in_place(const std::vector<Batch>& batches, std::int64_t step, double learning_rate) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto from = tensors_of(batches[i]), to = tensors_of(batches_[i]);
    for (std::size_t j = 0; j < from.size(); ++j)
      if (from[j]->defined()) to[j]->copy_(*from[j], /*non_blocking=*/true);
  }
  learning_rate_.fill_(learning_rate);
  passes_.set_step(step);
}

void GraphTrainingStep::record() {
  try {
    graph_->capture([this] { compute(); });
    recorded_ = true;
    log::info("from here on the device replays a step as one graph");
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    log::warning("a step cannot be recorded as a CUDA graph, so the host starts its parts one by one: {}",
                 message.substr(0, message.find('\n')));
    graph_.reset();
  }
}

void GraphTrainingStep::compute() {
  PhaseTimer untimed(nullptr, parts_.device);
  auto loss = accumulate_gradients(parts_, batches_, passes_, untimed);
  auto norm = clip_gradients(parts_);
  parts_.optimizer.step(learning_rate_);
  result_ = finish_step(parts_, std::move(loss), std::move(norm));
}

}  // namespace metaformer
