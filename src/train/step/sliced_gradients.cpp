#include "train/step/sliced_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/parallel.h"

namespace metaformer {

static std::int64_t parts_of_batch(int size, std::int64_t accumulate) {
  return size / std::gcd(std::int64_t{size}, accumulate);
}

std::vector<Piece> pieces_of(int rank, int size, std::int64_t accumulate) {
  const auto parts = parts_of_batch(size, accumulate), of_process = accumulate * parts / size;
  std::vector<Piece> pieces;
  for (auto i = rank * of_process; i < (rank + 1) * of_process; ++i)
    pieces.push_back({.micro = i / parts, .part = i % parts, .parts = parts});
  return pieces;
}

void require_equal_pieces(const ExperimentConfig& experiment, int size) {
  const auto& config = experiment.train;
  const auto parts = parts_of_batch(size, config.accumulate);
  if (batches_by_tokens(experiment.task) && parts > 1)
    throw Error(ExitCode::usage,
                fmt::format("train.accumulate {} cannot be divided over {} processes: with task.batch_unit token every "
                            "process takes whole batches, so train.accumulate must be a multiple of {}",
                            config.accumulate, size, size));
  if (config.batch_size % parts == 0) return;
  throw Error(ExitCode::usage,
              fmt::format("the rows of a step, train.batch_size {} x train.accumulate {}, cannot be divided over {} "
                          "processes: train.batch_size must be a multiple of {}",
                          config.batch_size, config.accumulate, size, parts));
}

namespace {

// What one thread computes.
struct Slice {
  Batch batch;
  Pass pass;
  std::int64_t number;  // of the pass among those of the step
  torch::Tensor loss = {};
  torch::autograd::variable_list gradients = {};  // of what is trained; undefined: it has no part in the loss
  double forward_seconds = 0, backward_seconds = 0;
};

void compute(const StepParts& parts, const std::vector<torch::Tensor>& parameters, const torch::Tensor& weight,
             bool has_faults, Slice& slice) {
  StepTimes times;
  PhaseTimer timer(&times, parts.device);
  auto loss = batch_loss(parts, slice.batch, weight, slice.pass, slice.number, AutocastCasts::keep);
  if (has_faults) loss = with_faults(loss);
  timer.end(StepPhase::forward);
  slice.gradients = torch::autograd::grad({scaled(parts, loss)}, parameters, /*grad_outputs=*/{},
                                          /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  timer.end(StepPhase::backward);
  slice.loss = loss.detach();
  slice.forward_seconds = times.of(StepPhase::forward);
  slice.backward_seconds = times.of(StepPhase::backward);
}

// In the order of the slices, each parameter by one thread. What batches of a step give is added as that of one batch
// each, so that it makes no difference which process adds it.
void add_gradients(const std::vector<torch::Tensor>& parameters, std::vector<Slice>& slices, bool first) {
  at::parallel_for(0, std::ssize(parameters), 1, [&](std::int64_t begin, std::int64_t end) {
    const torch::NoGradGuard no_grad;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      torch::Tensor sum = first ? parameters[i].mutable_grad() : torch::Tensor();
      bool is_empty = true;
      for (auto& slice : slices) {
        const auto& gradient = slice.gradients[i];
        if (!gradient.defined()) continue;
        if (!sum.defined())
          sum = gradient.clone();
        else
          is_empty&& first ? sum.copy_(gradient) : sum.add_(gradient);
        is_empty = false;
      }
      if (!first && sum.defined()) parameters[i].mutable_grad().add_(sum);
      if (first && is_empty) sum.zero_();
    }
  });
}

std::vector<Slice> cut(const Batch& batch, const Slices& into) {
  const auto rows = batch.ids_bc.size(0), count = std::min(into.count, rows);
  std::vector<Slice> slices;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = rows * i / count, end = rows * (i + 1) / count;
    slices.push_back({.batch = rows_of(batch, first, end - first),
                      .pass = into.passes.pass(batch.first_row + first),
                      .number = into.first_number + i});
  }
  return slices;
}

}  // namespace

torch::Tensor add_gradients_of_slices(const StepParts& parts, const Batch& batch, const torch::Tensor& weight,
                                      const Slices& into, PhaseTimer& timer) {
  auto slices = cut(batch, into);
  std::vector<torch::Tensor> parameters;
  for (const auto& view : parts.parameters.views())
    if (view.rate > 0) parameters.push_back(view.parameter);
  {
    const AutocastScope casts(parts.config.train.precision, parts.device);
    at::parallel_for(0, std::ssize(slices), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        compute(parts, parameters, weight, i == 0, slices[static_cast<std::size_t>(i)]);
    });
  }
  add_gradients(parameters, slices, /*first=*/into.first_number == 0);
  double forward = 0, backward = 0;
  torch::Tensor loss = torch::zeros_like(slices.front().loss);
  for (const auto& slice : slices) {
    forward += slice.forward_seconds;
    backward += slice.backward_seconds;
    loss += slice.loss;
  }
  timer.end(StepPhase::forward, StepPhase::backward, forward / (forward + backward));
  return loss;
}

}  // namespace metaformer
