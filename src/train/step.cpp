#include "train/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "model/make_model.h"
#include "ops/fused_cross_entropy.h"
#include "ops/fused_update.h"
#include "ops/kernel.h"
#include "ops/recompute.h"
#include "tasks/batches.h"
#include "train/optim/learning_rate.h"

namespace metaformer {

// Times the phases of a step, and waits for the device between them. Without `times` it does nothing.
class PhaseTimer {
 public:
  PhaseTimer(StepTimes* times, torch::Device device) : times_(times), device_(device) {
    if (times_ == nullptr) return;
    wait_for(device_);
    start_ = std::chrono::steady_clock::now();
  }

  // Adds the time since the end of the previous phase to `phase`. If threads have run two phases concurrently, `phase`
  // gets the fraction `part`, and `other` the rest.
  void end(StepPhase phase, double part = 1, StepPhase other = StepPhase::backward) {
    if (times_ == nullptr) return;
    wait_for(device_);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    times_->seconds[static_cast<std::size_t>(phase)] += part * seconds;
    times_->seconds[static_cast<std::size_t>(other)] += (1 - part) * seconds;
    start_ = now;
  }

 private:
  StepTimes* times_;
  torch::Device device_;
  std::chrono::steady_clock::time_point start_;
};

// The work of one thread: some rows of a batch.
struct Slice {
  Batch batch;
  Pass pass;
  std::int64_t number;  // of the pass within the step
  torch::Tensor loss = {};
  torch::autograd::variable_list gradients = {};  // by trained parameter; undefined if the loss does not depend on it
  StepTimes times = {};
};

namespace {

std::int64_t parts_of_batch(int size, std::int64_t accumulate) {
  return size / std::gcd(std::int64_t{size}, accumulate);
}

// Whether backward recomputes parts of a step, which then add to the gradients on their own.
bool computes_again(const ExperimentConfig& config) {
  const auto* model = blocks_of(config.model);
  return config.train.loss_chunks > 1 ||
         (model != nullptr && (model->blocks == BlockKind::reversible || chunks_of(model->feed_forward) > 1));
}

// For tests: the loss, made NaN or infinite by the faults "nan" and "overflow" (base/files.h).
torch::Tensor with_faults(torch::Tensor loss) {
  if (fault_strikes("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
  if (fault_strikes("overflow"))  // loss and gradients, as with a scale too large for fp16
    loss = loss * std::numeric_limits<float>::max() * std::numeric_limits<float>::max();
  return loss;
}

// Adds the gradients of the slices in their order, each parameter on one thread. The sum of a batch's slices is added
// as a whole, so that the result does not depend on which process adds it. `first`: replaces the existing gradients.
void add_in_order(const std::vector<torch::Tensor>& parameters, std::vector<Slice>& slices, bool first) {
  at::parallel_for(0, std::ssize(parameters), 1, [&](std::int64_t begin, std::int64_t end) {
    const torch::NoGradGuard no_grad;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      auto& total = parameters[i].mutable_grad();
      torch::Tensor sum;
      for (const auto& slice : slices) {
        const auto& gradient = slice.gradients[i];
        if (!gradient.defined()) continue;
        if (sum.defined())
          sum.add_(gradient);
        else
          sum = first ? total.copy_(gradient) : gradient.clone();
      }
      if (first && !sum.defined()) total.zero_();
      if (!first && sum.defined()) total.add_(sum);
    }
  });
}

// Computed tensor by tensor, as torch.nn.utils.clip_grad_norm_: one sum over the whole buffer would lose the last three
// digits. On the CPU one thread computes each tensor, so that the norm does not depend on the number of threads.
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
    for (auto i = begin; i < end; ++i) {
      const auto& view = views[static_cast<std::size_t>(i)];
      auto gradient = view.parameter.grad();
      if (view.has_listed_rows()) {
        const auto rows = torch::tensor(view.gradient_rows->listed(), torch::kLong);
        gradient = gradient.view({-1, view.row_width()}).index_select(0, rows);
      }
      norms_p.select(0, i).copy_(gradient.norm());
    }
  });
  return norms_p.norm();
}

bool have_same_shape(const Batch& a, const Batch& b) {
  const auto of_a = tensors_of(a), of_b = tensors_of(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), [](const auto* x, const auto* y) {
    return x->defined() == y->defined() && (!x->defined() || x->sizes() == y->sizes());
  });
}

torch::Tensor copy(const torch::Tensor& x) { return x.defined() ? x.clone() : x; }

Batch copy_of(Batch batch) {
  for (auto* tensor : tensors_of(batch)) *tensor = copy(*tensor);
  return batch;
}

}  // namespace

constexpr std::string_view prefix = "memory.";

StepMemory::StepMemory(const SequenceModel& model, std::int64_t batches, std::int64_t slices, ProcessGroup& group)
    : batches_(batches), slices_(slices), group_(&group) {
  for (std::int64_t pass = 0; pass < batches * slices; ++pass) {
    auto memory = model.new_memory();
    if (memory == nullptr) return;
    passes_.push_back(std::move(memory));
  }
}

ModelState* StepMemory::of_pass(std::int64_t pass) const {
  return passes_.empty() ? nullptr : passes_.at(static_cast<std::size_t>(pass)).get();
}

void StepMemory::reset() {
  for (const auto& pass : passes_) pass->reset();
}

NamedTensors StepMemory::join(const std::vector<NamedTensors>& parts) const {
  NamedTensors whole = parts.front();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    auto& [name, tensor] = whole[i];
    std::vector<torch::Tensor> rows;
    for (const auto& part : parts) rows.push_back(part.at(i).second);
    if (tensor.dim() > 0) tensor = torch::cat(rows, passes_.front()->sequence_dimension(name));
  }
  return whole;
}

NamedTensors StepMemory::tensors() const {
  if (passes_.empty()) return {};
  std::vector<NamedTensors> own;
  for (const auto& pass : passes_) {
    own.push_back(pass->tensors());
    if (own.back().empty()) own.pop_back();  // the batch has fewer rows than slices
  }
  NamedTensors all;
  for (auto& [name, tensor] : join(gather_tensors(*group_, own.empty() ? NamedTensors() : join(own))))
    all.emplace_back(std::string(prefix) + name, std::move(tensor));
  return all;
}

NamedTensors StepMemory::part_of(const NamedTensors& whole, std::size_t pass) const {
  NamedTensors part;
  for (const auto& [name, tensor] : whole) {
    part.emplace_back(name, tensor);
    if (tensor.dim() == 0) continue;
    const auto dimension = passes_.front()->sequence_dimension(name);
    const auto rows = tensor.size(dimension) / (group_->size() * batches_), slices = std::min(slices_, rows);
    const auto batch = static_cast<std::int64_t>(pass) / slices_, slice = static_cast<std::int64_t>(pass) % slices_;
    if (slice >= slices) return {};
    const auto first = rows * slice / slices, end = rows * (slice + 1) / slices;
    part.back().second = tensor.narrow(dimension, (group_->rank() * batches_ + batch) * rows + first, end - first);
  }
  return part;
}

void StepMemory::take(NamedTensors& saved, std::int64_t rows, const std::string& file) {
  if (passes_.empty()) return;
  const auto source = file + ": memory";
  const auto own = std::stable_partition(saved.begin(), saved.end(),
                                         [](const auto& entry) { return !entry.first.starts_with(prefix); });
  NamedTensors whole;
  for (auto entry = own; entry != saved.end(); ++entry)
    whole.emplace_back(entry->first.substr(prefix.size()), entry->second);
  saved.erase(own, saved.end());
  passes_.front()->load(whole, source);  // checks that the tensors are those of a state
  for (const auto& [name, tensor] : whole) {
    if (tensor.dim() == 0) continue;
    auto shape = tensor.sizes().vec();
    shape[static_cast<std::size_t>(passes_.front()->sequence_dimension(name))] = rows;
    require_shape(source, name, tensor, shape);
  }
  for (std::size_t pass = 0; pass < passes_.size(); ++pass) passes_[pass]->load(part_of(whole, pass), source);
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

Step::Step(const ExperimentConfig& config, const Task& task, torch::Device device, ProcessGroup& group)
    : model(make_model(config, sizes_of(*task.codec))),
      config_(config),
      task_(task),
      device_(device),
      group_(group),
      passes_(static_cast<std::uint64_t>(config.train.seed), device) {
  initialise(*model, static_cast<std::uint64_t>(config.train.seed));
  model->to(device);
  const bool has_adapters = config.train.lora.rank > 0;
  auto all = specified_parameters(*model);
  parameters = std::make_unique<ParameterBuffer>(has_adapters ? with_adapters(std::move(all), config.train) : all);
  if (has_half_products(config.train.precision)) parameters->keep_half(half_type(config.train.precision));
  set_layer_rates(*parameters, config.train);
  if (has_adapters) lora = std::make_unique<Lora>(*parameters, config.train.lora);
  if (config.train.precision == Precision::fp16) loss_scale = std::make_unique<LossScale>(device);
  auto scale = loss_scale ? loss_scale->of_gradients() : GradientScale{};
  if (config.train.clip > 0 && clips_in_update(*parameters, config.train))
    scale.factor = clip_factor_ = torch::ones({}, parameters->values().options());
  if (config.train.shard_optimizer && group.size() > 1) {
    auto sharded = std::make_unique<ShardedOptimizer>(*parameters, config.train, scale, group);
    shards_ = &sharded->shards();
    optimizer = std::move(sharded);
  } else {
    optimizer = make_optimizer(*parameters, config.train, scale);
  }
  average = std::make_unique<WeightAverage>(*parameters, config.train.weight_average.decay, [this] {
    if (lora) lora->merge();
    refresh_half();
  });
  if (group.size() > 1) gradient_sum_ = std::make_unique<GradientSum>(group, *parameters, shards_);
  memory = std::make_unique<StepMemory>(*model, std::ssize(pieces()), slices(), group);
  if (device.is_cuda() && config.train.cuda_graph) make_graph();
}

constexpr auto another_cannot_record = "another process cannot record them";

// Sums of several processes are recorded, too: NCCL adds on the device, after the first steps have connected the
// processes.
void Step::make_graph() {
  std::string problem;
  if (config_.train.divergence.spikes.threshold > 0)
    problem = "the host watches for spikes (train.divergence.spikes.threshold)";
  if (memory->of_pass(0) != nullptr)
    problem = fmt::format("a step goes on from the one before it ({})", order_key(config_.model));
  if (gradient_sum_ != nullptr && gradient_sum_->needs_host())
    problem = "processes exchange the rows of a table that have a gradient";
  if (computes_again(config_)) problem = "parts of it are computed again in backward";
  if (problem.empty()) {
    graph_ = make_cuda_graph(device_, problem);
    if (!all_agree(group_, graph_ != nullptr) && graph_ != nullptr) {
      problem = another_cannot_record;
      graph_.reset();
    }
  }
  if (graph_ == nullptr) log::info("steps are not replayed as a CUDA graph: {}", problem);
}

void Step::start_from_model() {
  average->reset();
  if (lora) lora->take_base();
}

NamedTensors Step::state() const {
  auto all = optimizer->state();
  const auto add = [&](NamedTensors more) { all.insert(all.end(), more.begin(), more.end()); };
  if (loss_scale) add(loss_scale->state());
  if (lora) add(lora->state());
  add(average->state());
  add(memory->tensors());
  return all;
}

void Step::restore(const Checkpoint& checkpoint) {
  const WeightAverage::Use use(*average);
  copy_by_name(checkpoint.model, named_state(*model), (checkpoint.folder / "model.safetensors").string());
  const auto file = (checkpoint.folder / "state.safetensors").string();
  auto saved = checkpoint.optimizer;
  memory->reset();
  const auto targets = state();
  memory->take(saved, config_.train.batch_size * config_.train.accumulate, file);
  copy_by_name(saved, targets, file);
  optimizer->load(targets);
}

void Step::restart(const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  parameters->values().copy_(values);
  optimizer->reset();
  if (loss_scale) loss_scale->reset();
  average->reset();
  memory->reset();
}

std::vector<Batch> Step::batches(std::int64_t step) const {
  std::vector<Batch> batches;
  for (const auto& piece : pieces()) {
    auto batch = task_.batches->training_batch(step, piece.micro, device_);
    batch.first_row = piece.micro * config_.train.batch_size;
    if (piece.parts > 1) {
      const auto rows = batch.ids_bc.size(0), first = rows * piece.part / piece.parts;
      const auto weight = piece.part > 0 ? torch::zeros_like(batch.weight) : batch.weight;
      batch = rows_of(batch, first, rows * (piece.part + 1) / piece.parts - first);
      batch.weight = weight;
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

// The loss, summed over chunks of the tokens. Their logits are computed one chunk at a time, and again in backward.
torch::Tensor Step::loss_in_chunks(const Batch& batch, const torch::Tensor& hidden) const {
  const auto hidden_td = hidden.flatten(0, -2), targets_t = wanted_targets_t(batch),
             weights_t = wanted_weights_t(batch);
  const auto tokens = targets_t.size(0), chunks = std::min(config_.train.loss_chunks, tokens);
  torch::Tensor sum;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto first = tokens * i / chunks, count = tokens * (i + 1) / chunks - first;
    Batch chunk;
    chunk.targets_bc = targets_t.narrow(0, first, count).unsqueeze(0);
    if (weights_t.defined()) chunk.target_weights_bc = weights_t.narrow(0, first, count).unsqueeze(0);
    const auto loss_of = [this, chunk](const torch::Tensor& part_td) {
      return task_.objective(model->logits_of(part_td.unsqueeze(0)), chunk);
    };
    const auto loss = recomputed(loss_of, hidden_td.narrow(0, first, count), model->head_weights());
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

// By the same operations as in backward of batch_loss() and scaled(), so that the bits are the same.
torch::Tensor Step::gradient_of_sum(const torch::Tensor& weight) const {
  const auto of_loss = loss_scale ? loss_scale->factor() : torch::ones({}, weight.options().dtype(torch::kFloat));
  return of_loss / weight.to(torch::kFloat);
}

torch::Tensor Step::batch_loss(const Batch& batch, const torch::Tensor& weight, Pass pass, std::int64_t number,
                               AutocastCasts casts) {
  const AutocastScope autocast(config_.train.precision, device_, casts);
  const ExpectedLossGradient expected([&] { return gradient_of_sum(weight); });
  auto* remembered = memory->of_pass(number);
  const auto sum = config_.train.loss_chunks > 1 ? loss_in_chunks(batch, model->hidden(batch, remembered, pass))
                                                 : task_.objective(model->forward(batch, remembered, pass), batch);
  return sum / weight.to(sum.scalar_type());
}

torch::Tensor Step::scaled(const torch::Tensor& loss) const {
  if (!loss.requires_grad())
    throw Error(ExitCode::usage,
                "train.freeze: the loss depends on no parameter that is left, so that there is nothing to train");
  return loss_scale == nullptr ? loss : loss * loss_scale->factor();
}

torch::Tensor Step::add_gradients(const Batch& batch, const torch::Tensor& weight, std::int64_t number,
                                  PhaseTimer& timer) {
  const auto loss = with_faults(batch_loss(batch, weight, passes_.pass(batch.first_row), number));
  timer.end(StepPhase::forward);
  scaled(loss).backward();
  timer.end(StepPhase::backward);
  return loss.detach();
}

void Step::compute_slice(const std::vector<torch::Tensor>& trained, const torch::Tensor& weight, bool has_faults,
                         Slice& slice) {
  PhaseTimer timer(&slice.times, device_);
  auto loss = batch_loss(slice.batch, weight, slice.pass, slice.number, AutocastCasts::keep);
  if (has_faults) loss = with_faults(loss);
  timer.end(StepPhase::forward);
  slice.gradients = torch::autograd::grad({scaled(loss)}, trained, /*grad_outputs=*/{}, /*retain_graph=*/false,
                                          /*create_graph=*/false, /*allow_unused=*/true);
  timer.end(StepPhase::backward);
  slice.loss = loss.detach();
}

// The slices of a step's first batch replace the existing gradients; those of later batches are added.
torch::Tensor Step::add_gradients_of_slices(const Batch& batch, const torch::Tensor& weight, std::int64_t first_number,
                                            PhaseTimer& timer) {
  const auto rows = batch.ids_bc.size(0), count = std::min(slices(), rows);
  std::vector<Slice> slices;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = rows * i / count, end = rows * (i + 1) / count;
    slices.push_back({.batch = rows_of(batch, first, end - first),
                      .pass = passes_.pass(batch.first_row + first),
                      .number = first_number + i});
  }
  std::vector<torch::Tensor> trained;
  for (const auto& view : parameters->views())
    if (view.parameter.requires_grad()) trained.push_back(view.parameter);
  {
    const AutocastScope casts(config_.train.precision, device_);
    at::parallel_for(0, std::ssize(slices), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) compute_slice(trained, weight, i == 0, slices[static_cast<std::size_t>(i)]);
    });
  }
  add_in_order(trained, slices, /*first=*/first_number == 0);
  double forward = 0, backward = 0;
  torch::Tensor loss = torch::zeros_like(slices.front().loss);
  for (const auto& slice : slices) {
    forward += slice.times.of(StepPhase::forward);
    backward += slice.times.of(StepPhase::backward);
    loss += slice.loss;
  }
  timer.end(StepPhase::forward, forward / (forward + backward));
  return loss;
}

// A pass reads the copy if it is current; a replayed graph reads it without asking.
void Step::refresh_half() {
  if (parameters->half() != nullptr) parameters->half()->refresh();
}

torch::Tensor Step::accumulate_gradients(const std::vector<Batch>& batches, PhaseTimer& timer) {
  refresh_half();
  auto weight = batches.front().weight.clone();  // of all batches of the step
  for (std::size_t i = 1; i < batches.size(); ++i) weight += batches[i].weight;
  group_.sum(weight);
  const auto count = slices();
  if (count == 1) parameters->clear_gradients();
  const bool is_sent_early = gradient_sum_ != nullptr && count == 1 && !computes_again(config_);
  torch::Tensor total;
  for (std::int64_t micro = 0; micro < std::ssize(batches); ++micro) {
    if (is_sent_early && micro + 1 == std::ssize(batches)) gradient_sum_->start_with_backward();
    const auto& batch = batches[static_cast<std::size_t>(micro)];
    const auto loss = count == 1 ? add_gradients(batch, weight, micro, timer)
                                 : add_gradients_of_slices(batch, weight, micro * count, timer);
    total = total.defined() ? total + loss : loss;
  }
  if (lora) lora->project_gradients();
  if (gradient_sum_ != nullptr) gradient_sum_->finish();
  group_.sum(total);
  timer.end(StepPhase::reduce);
  return total;
}

torch::Tensor Step::compute_gradients(std::int64_t step, const std::vector<Batch>& batches) {
  passes_.set_step(step);
  PhaseTimer untimed(nullptr, device_);
  return accumulate_gradients(batches, untimed);
}

torch::Tensor Step::clip_by_kernel() {
  const double limit = config_.train.clip;
  const auto scale = loss_scale ? loss_scale->of_gradients() : GradientScale{};
  const auto& gradients = parameters->gradients();
  const auto factor = clip_factor_.defined() || limit == 0 ? clip_factor_ : torch::empty({}, gradients.options());
  const auto norm = fused_gradient_norm(
      gradients, {.divisor = scale.divisor, .found_inf = scale.found_inf, .factor = factor, .limit = limit});
  if (limit > 0 && !clip_factor_.defined()) parameters->scale_gradients(factor);
  return norm;
}

torch::Tensor Step::clip_gradients() {
  const torch::NoGradGuard no_grad;
  if (shards_ == nullptr && has_fused_update(parameters->gradients())) return clip_by_kernel();
  const double limit = config_.train.clip;
  torch::Tensor norm;
  if (shards_ == nullptr) {
    norm = norm_of_gradients(*parameters);
  } else {  // each process has the gradients of its shard
    const auto& own = shards_->at(static_cast<std::size_t>(group_.rank()));
    const auto square = parameters->gradients().narrow(0, own.first, own.count).to(torch::kDouble).square().sum();
    group_.sum(square);
    norm = square.sqrt().to(torch::kFloat);
  }
  if (loss_scale != nullptr) norm = loss_scale->unscaled_norm(norm);
  if (limit > 0) {
    constexpr double epsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_
    const auto factor = (limit / (norm + epsilon)).clamp_max(1);
    const auto used = torch::where(norm.isfinite(), factor, 1.0);  // NaN stays in its tensor, for an error to name
    if (clip_factor_.defined())
      clip_factor_.copy_(used);
    else if (norm.is_cuda() || used.item<double>() != 1)  // on a GPU without waiting
      parameters->scale_gradients(used);
  }
  return norm;
}

void Step::update(const LearningRate& learning_rate) {
  optimizer->step(learning_rate);
  if (lora) lora->merge();
  refresh_half();
}

// To be called after the update. Adapts the loss scale.
StepResult Step::finish(torch::Tensor loss, torch::Tensor gradient_norm) {
  StepResult result{.loss = std::move(loss), .gradient_norm = std::move(gradient_norm), .skipped = {}, .exhausted = {}};
  if (loss_scale == nullptr) return result;
  const torch::NoGradGuard no_grad;
  result.skipped = loss_scale->is_skipped();
  result.exhausted = loss_scale->is_exhausted();
  loss_scale->adapt();
  return result;
}

StepResult Step::run_eagerly(std::int64_t step, const AcceptNorm& accept) {
  passes_.set_step(step);
  PhaseTimer timer(times_, device_);
  const auto batches = this->batches(step);
  timer.end(StepPhase::batch);
  auto loss = accumulate_gradients(batches, timer);
  auto norm = clip_gradients();
  timer.end(StepPhase::clip);
  if (!accept || accept(norm.item<double>())) update(learning_rate_);
  auto result = finish(std::move(loss), norm);
  timer.end(StepPhase::update);
  return result;
}

StepResult Step::run(std::int64_t step, double learning_rate, const AcceptNorm& accept) {
  constexpr std::int64_t steps_to_warm_up = 3;
  learning_rate_ = learning_rate;
  if (graph_ == nullptr || accept || times_ != nullptr || warm_steps_ < steps_to_warm_up) {
    ++warm_steps_;
    return run_eagerly(step, accept);
  }
  const auto batches = this->batches(step);
  refresh_half();  // before a graph is recorded or replayed
  if (!is_recorded_) {
    for (const auto& batch : batches) recorded_batches_.push_back(copy_of(batch));
    record();
  }
  const bool fits =
      std::equal(batches.begin(), batches.end(), recorded_batches_.begin(), recorded_batches_.end(), have_same_shape);
  if (!is_recorded_ || !fits) return run_eagerly(step, accept);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto from = tensors_of(batches[i]);
    const auto to = tensors_of(recorded_batches_[i]);
    for (std::size_t j = 0; j < from.size(); ++j)
      if (from[j]->defined()) to[j]->copy_(*from[j], /*non_blocking=*/true);
  }
  recorded_rate_.fill_(learning_rate);
  passes_.set_step(step);
  graph_->replay();
  return {.loss = copy(recorded_result_.loss),
          .gradient_norm = copy(recorded_result_.gradient_norm),
          .skipped = copy(recorded_result_.skipped),
          .exhausted = copy(recorded_result_.exhausted)};
}

// The reason why a step cannot be recorded in the graph; empty if it was.
std::string Step::record_own() {
  try {
    graph_->capture([this] {
      PhaseTimer untimed(nullptr, device_);
      auto loss = accumulate_gradients(recorded_batches_, untimed);
      auto norm = clip_gradients();
      update(recorded_rate_);
      recorded_result_ = finish(std::move(loss), std::move(norm));
    });
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const Error& error) {
    if (error.code() != ExitCode::process_lost) throw;
    return error.what();  // of a sum; if a process has ended, the next agreement finds it out
  }
  return "";
}

// All processes replay their steps, or none.
void Step::record() {
  recorded_rate_ = torch::zeros({}, torch::TensorOptions().dtype(torch::kFloat).device(device_));
  if (gradient_sum_ != nullptr) gradient_sum_->reset();
  auto problem = record_own();
  if (gradient_sum_ != nullptr) gradient_sum_->reset();
  is_recorded_ = all_agree(group_, problem.empty());
  if (is_recorded_) return log::info("from here on the device replays a step as one graph");
  if (problem.empty()) problem = another_cannot_record;
  log::warning("a step cannot be recorded as a CUDA graph, so the host starts its parts one by one: {}",
               problem.substr(0, problem.find('\n')));
  graph_.reset();
}

}  // namespace metaformer
