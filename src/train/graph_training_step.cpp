#include "train/graph_training_step.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/random.h"

namespace metaformer {

namespace {

std::array<const torch::Tensor*, 5> tensors_of(const Batch& batch) {
  return {&batch.ids_bc, &batch.targets_bc, &batch.segments_bc, &batch.positions_bc, &batch.labels_b};
}

bool have_same_shape(const Batch& a, const Batch& b) {
  const auto of_a = tensors_of(a), of_b = tensors_of(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (of_a[i]->defined() != of_b[i]->defined()) return false;
    if (of_a[i]->defined() && of_a[i]->sizes() != of_b[i]->sizes()) return false;
  }
  return a.weight == b.weight;
}

Batch copy_of(const Batch& batch) {
  const auto copy = [](const torch::Tensor& x) { return x.defined() ? x.clone() : x; };
  return {.ids_bc = copy(batch.ids_bc),
          .targets_bc = copy(batch.targets_bc),
          .segments_bc = copy(batch.segments_bc),
          .positions_bc = copy(batch.positions_bc),
          .labels_b = copy(batch.labels_b),
          .weight = batch.weight};
}

}  // namespace

GraphTrainingStep::GraphTrainingStep(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                     ParameterBuffer& parameters, AdamW& optimizer, torch::Device device,
                                     std::unique_ptr<DeviceGraph> graph)
    : config_(config),
      task_(task),
      model_(model),
      parameters_(parameters),
      optimizer_(optimizer),
      device_(device),
      eager_(config, task, model, parameters, optimizer, device),
      graph_(std::move(graph)),
      learning_rate_(torch::zeros({}, torch::TensorOptions().dtype(torch::kFloat).device(device))) {}

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
  const auto batches = training_batches(task_, config_.train.accumulate, step, device_);
  if (!recorded_) {
    for (const auto& batch : batches) batches_.push_back(copy_of(batch));
    record();
  }
  if (!recorded_ || !fit(batches)) return eager_.run(step, learning_rate, accept);
  put_in_place(batches, step, learning_rate);
  graph_->replay();
  return {result_.loss.clone(), result_.gradient_norm.clone()};
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
  const Rng dropout(static_cast<std::uint64_t>(config_.train.seed), RandomPurpose::dropout,
                    static_cast<std::uint64_t>(step));
  torch::manual_seed(dropout.bits(0) >> 1);
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
  const double weight = weight_of(batches_);
  parameters_.gradients().zero_();
  torch::Tensor total;
  for (const auto& batch : batches_) {
    const auto loss = batch_loss(config_.train.precision, task_, model_, batch, weight, device_);
    loss.backward();
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  result_ = {total, clip_gradients(parameters_, config_.train.clip)};
  optimizer_.step(learning_rate_);
}

std::unique_ptr<TrainingStep> make_training_step(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                                 ParameterBuffer& parameters, AdamW& optimizer, torch::Device device) {
  if (device.is_cuda() && config.train.cuda_graph) {
    std::string problem;
    if (config.train.spike_threshold > 0) problem = "the host watches for spikes (train.spike_threshold)";
    auto graph = problem.empty() ? make_cuda_graph(problem) : nullptr;
    if (graph != nullptr)
      return std::make_unique<GraphTrainingStep>(config, task, model, parameters, optimizer, device, std::move(graph));
    log::info("steps are not replayed as a CUDA graph: {}", problem);
  }
  return std::make_unique<EagerTrainingStep>(config, task, model, parameters, optimizer, device);
}

}  // namespace metaformer
