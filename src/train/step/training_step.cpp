#include "train/step/training_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "ops/parallel.h"
#include "train/step/sliced_gradients.h"

namespace metaformer {

namespace {

std::vector<Piece> own_pieces(const StepParts& parts) {
  return pieces_of(parts.group->rank(), parts.group->size(), parts.config.train.accumulate);
}

Batch part_of(const Batch& batch, const Piece& piece) {
  const auto rows = batch.ids_bc.size(0), first = rows * piece.part / piece.parts,
             end = rows * (piece.part + 1) / piece.parts;
  auto part = rows_of(batch, first, end - first);
  if (piece.part > 0) part.weight = torch::zeros_like(batch.weight);
  return part;
}

}  // namespace

std::vector<Batch> training_batches(const StepParts& parts, std::int64_t step) {
  std::vector<Batch> batches;
  for (const auto& piece : own_pieces(parts)) {
    auto batch = parts.task.batches->training_batch(step, piece.micro, parts.device);
    batch.first_row = piece.micro * parts.config.train.batch_size;
    batches.push_back(piece.parts == 1 ? std::move(batch) : part_of(batch, piece));
  }
  return batches;
}

namespace {

// Of all batches of the step.
torch::Tensor weight_of(const StepParts& parts, const std::vector<Batch>& batches) {
  auto weight = batches.front().weight.clone();
  for (std::size_t i = 1; i < batches.size(); ++i) weight += batches[i].weight;
  parts.group->sum(weight);
  return weight;
}

torch::Tensor add_gradients_of_batch(const StepParts& parts, const Batch& batch, const torch::Tensor& weight,
                                     const Pass& pass, std::int64_t number, PhaseTimer& timer) {
  const auto loss = with_faults(batch_loss(parts, batch, weight, pass, number));
  timer.end(StepPhase::forward);
  scaled(parts, loss).backward();
  timer.end(StepPhase::backward);
  return loss.detach();
}

}  // namespace

std::int64_t slices_of_batch(const StepParts& parts) {
  return parts.device.is_cpu() ? parts.config.train.cpu_slices : 1;
}

std::int64_t batches_of_step(const StepParts& parts) { return std::ssize(own_pieces(parts)); }

bool computes_again(const ExperimentConfig& config) {
  const auto* model = blocks_of(config.model);
  return config.train.loss_chunks > 1 ||
         (model != nullptr && (model->blocks == BlockKind::reversible || chunks_of(model->feed_forward) > 1));
}

torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer) {
  const auto weight = weight_of(parts, batches);
  const auto count = slices_of_batch(parts);
  if (count == 1) parts.parameters.clear_gradients();
  const bool is_sent_early = parts.gradient_sum != nullptr && count == 1 && !computes_again(parts.config);
  torch::Tensor total;
  for (std::int64_t micro = 0; micro < std::ssize(batches); ++micro) {
    if (is_sent_early && micro + 1 == std::ssize(batches)) parts.gradient_sum->start_with_backward();
    const auto& batch = batches[static_cast<std::size_t>(micro)];
    const auto loss =
        count == 1 ? add_gradients_of_batch(parts, batch, weight, passes.pass(batch.first_row), micro, timer)
                   : add_gradients_of_slices(parts, batch, weight,
                                             {.passes = passes, .count = count, .first_number = micro * count}, timer);
    total = total.defined() ? total + loss : loss;
  }
  if (parts.gradient_sum != nullptr) parts.gradient_sum->finish();
  parts.group->sum(total);
  timer.end(StepPhase::reduce);
  return total;
}

namespace {

torch::Tensor norm_of_gradient(const ParameterBuffer::View& view) {
  const auto& gradient = view.parameter.grad();
  if (!view.has_listed_rows()) return gradient.norm();
  const auto rows = torch::tensor(view.gradient_rows->listed(), torch::kLong);
  return gradient.view({-1, view.row_width()}).index_select(0, rows).norm();
}

// Tensor by tensor, as torch.nn.utils.clip_grad_norm_: one sum over all of the buffer would lose the last three digits.
// On the CPU each by one thread, so that the norm does not depend on the number of threads.
torch::Tensor norm_of_gradients(const ParameterBuffer& parameters) {
  const auto& views = parameters.views();
  if (!parameters.values().is_cpu()) {
    std::vector<torch::Tensor> gradients;
    for (const auto& view : views) gradients.push_back(view.parameter.grad());
    return torch::stack(at::_foreach_norm(gradients)).norm();
  }
  auto norms_p = torch::empty({std::ssize(views)}, parameters.values().options());
  at::parallel_for(0, std::ssize(views), 1, [&](std::int64_t begin, std::int64_t end) {
    const torch::NoGradGuard no_grad;
    for (auto i = begin; i < end; ++i) norms_p.select(0, i).copy_(norm_of_gradient(views[static_cast<std::size_t>(i)]));
  });
  return norms_p.norm();
}

// Of which each process has a part.
torch::Tensor norm_of_shards(const StepParts& parts) {
  const auto& own = parts.shards->at(static_cast<std::size_t>(parts.group->rank()));
  const auto square = parts.parameters.gradients().narrow(0, own.first, own.count).to(torch::kDouble).square().sum();
  parts.group->sum(square);
  return square.sqrt().to(torch::kFloat);
}

}  // namespace

torch::Tensor clip_gradients(const StepParts& parts) {
  const torch::NoGradGuard no_grad;
  const double limit = parts.config.train.clip;
  auto norm = parts.shards == nullptr ? norm_of_gradients(parts.parameters) : norm_of_shards(parts);
  if (parts.loss_scale != nullptr) norm = parts.loss_scale->unscaled_norm(norm);
  if (limit > 0) {
    constexpr double epsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_
    const auto factor = (limit / (norm + epsilon)).clamp_max(1);
    const auto used = torch::where(norm.isfinite(), factor, 1.0);  // NaN stays where it came from, to be named
    if (norm.is_cuda() || used.item<double>() != 1) parts.parameters.scale_gradients(used);  // a GPU is not waited for
  }
  return norm;
}

StepResult finish_step(const StepParts& parts, torch::Tensor loss, torch::Tensor gradient_norm) {
  StepResult result{.loss = std::move(loss), .gradient_norm = std::move(gradient_norm), .skipped = {}, .exhausted = {}};
  if (parts.loss_scale == nullptr) return result;
  const torch::NoGradGuard no_grad;
  result.skipped = parts.loss_scale->is_skipped();
  result.exhausted = parts.loss_scale->is_exhausted();
  parts.loss_scale->adapt();
  return result;
}

StepResult EagerTrainingStep::run(std::int64_t step, double learning_rate, const AcceptNorm& accept) {
  passes_.set_step(step);
  PhaseTimer timer(times_, parts_.device);
  const auto batches = training_batches(parts_, step);
  timer.end(StepPhase::batch);
  auto loss = accumulate_gradients(parts_, batches, passes_, timer);
  auto norm = clip_gradients(parts_);
  timer.end(StepPhase::clip);
  if (!accept || accept(norm.item<double>())) parts_.optimizer.step(learning_rate);
  auto result = finish_step(parts_, std::move(loss), norm);
  timer.end(StepPhase::update);
  return result;
}

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
