#include "report/split_inspection.h"

#include <algorithm>

#include "base/signals.h"
#include "model/transformer.h"
#include "ops/autocast.h"
#include "report/inspection.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

// After backward.
DepthNorms stream_gradients(const StreamProbe::Stack& stack) {
  std::vector<torch::Tensor> gradients;
  for (const auto& value : stack.stream)
    gradients.push_back(value.x_bcd.requires_grad() ? value.x_bcd.grad() : torch::Tensor());
  return gradient_norms(stack, gradients);
}

double gradient_norm(const torch::nn::Module& block, const std::string& branch) {
  double squares = 0;
  for (const auto& parameter : block.named_parameters())
    if (parameter.key().starts_with(branch) && parameter.value().grad().defined())
      squares += parameter.value().grad().to(torch::kDouble).square().sum().item<double>();
  return std::sqrt(squares);
}

bool has_memory(const LoadedRun& run) { return run.model->remembers(); }

GradientNorms measure_gradients(const LoadedRun& run, const Task& task) {
  const torch::AutoGradMode with_gradients(true);
  auto& model = *run.model;
  const auto batch = has_memory(run) ? task.batches->evaluation_batch(Split::validation, 0, run.device)
                                     : task.batches->random_batch(Split::validation, 0, run.device);
  StreamProbe probe(/*wants_scores=*/false);
  Pass pass{.probe = &probe};
  model.zero_grad();
  const auto loss = task.objective->loss(model.forward(batch, nullptr, pass), batch) / batch.weight;
  const auto& stack = probe.stacks().front();
  for (const auto& value : stack.stream)
    if (value.x_bcd.requires_grad()) value.x_bcd.retain_grad();
  loss.backward();
  GradientNorms norms{.stream = stream_gradients(stack)};
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* block = dynamic_cast<const BlockImpl*>(module.get());
    if (block == nullptr) continue;
    norms.mixer.push_back(gradient_norm(*block, "mixer"));
    norms.feed_forward.push_back(gradient_norm(*block, "feed_forward"));
  }
  model.zero_grad();
  return norms;
}

// [t], of the tokens to predict: 0 where there is no target.
torch::Tensor losses_of(const torch::Tensor& logits, const torch::Tensor& targets_t) {
  return at::cross_entropy_loss(widened(logits).flatten(0, -2), targets_t, {}, at::Reduction::None, /*ignore_index=*/-1)
      .to(torch::kDouble);
}

// Where each of them stands in its row.
torch::Tensor columns_of(const Batch& batch) {
  const auto rows = batch.ids_bc.size(0), length = batch.ids_bc.size(1);
  if (batch.places_t.defined()) return batch.places_t.clamp_min(0).remainder(length);
  return torch::arange(length, batch.ids_bc.options()).repeat(rows);
}

std::vector<PositionLoss> measure_positions(const LoadedRun& run, const Task& task, std::int64_t batches) {
  const auto all = task.batches->evaluation_batches(Split::validation);
  const auto context = context_of(run.experiment.config.model);
  auto loss_c = torch::zeros(context, torch::kDouble).to(run.device), targets_c = torch::zeros_like(loss_c);
  for (std::int64_t i = 0; i < (batches > 0 ? std::min(batches, all) : all); ++i) {
    throw_if_stopped();
    const auto batch = task.batches->evaluation_batch(Split::validation, i, run.device);
    const auto column_t = columns_of(batch), target_t = wanted_targets_t(batch);
    loss_c.index_add_(0, column_t, losses_of(run.predictor->logits(batch), target_t));
    targets_c.index_add_(0, column_t, (target_t >= 0).to(torch::kDouble));
  }
  std::vector<PositionLoss> found;
  for (std::int64_t c = 0; c < context; ++c)
    if (const auto targets = targets_c[c].item<double>(); targets > 0)
      found.push_back(
          {.position = c, .targets = static_cast<std::int64_t>(targets), .loss = loss_c[c].item<double>() / targets});
  return found;
}

// 1, 2, 3, 4, 6, 8, 12, 16, ..., context.
std::vector<std::int64_t> tried_contexts(std::int64_t context) {
  std::vector<std::int64_t> tried;
  for (std::int64_t m = 1; m < context; m *= 2) {
    tried.push_back(m);
    if (m >= 2 && 3 * m / 2 < context) tried.push_back(3 * m / 2);
  }
  tried.push_back(context);
  return tried;
}

// Adds the losses of the batch's last targets to those of every context.
void add_context_losses(const LoadedRun& run, const Batch& batch, std::vector<ContextLoss>& losses) {
  const auto whole = batch.targets_bc.size(1);
  const auto targets_b = batch.targets_bc.select(1, whole - 1);
  for (auto& [tokens, loss] : losses) {
    throw_if_stopped();
    const auto logits_bcv = run.predictor->logits({.ids_bc = batch.ids_bc.narrow(1, whole - tokens, tokens)});
    loss += losses_of(logits_bcv.select(1, tokens - 1), targets_b).sum().item<double>();
  }
}

void measure_context(const LoadedRun& run, const Task& task, std::int64_t wanted, SplitInspection& inspection) {
  const auto context = context_of(run.experiment.config.model);
  const auto all = task.batches->evaluation_batches(Split::validation);
  const auto rows = evaluation_rows(context);
  const auto batches = std::clamp<std::int64_t>((wanted + rows - 1) / rows, 1, all);
  for (const auto tokens : tried_contexts(context)) inspection.loss_by_context.push_back({.tokens = tokens});
  for (std::int64_t i = 0; i < batches; ++i) {
    const auto batch = task.batches->evaluation_batch(Split::validation, i * all / batches, run.device);
    inspection.context_targets += (batch.targets_bc.select(1, context - 1) >= 0).sum().item<std::int64_t>();
    add_context_losses(run, batch, inspection.loss_by_context);
  }
  if (inspection.context_targets == 0) {  // the split is shorter than the context
    inspection.loss_by_context.clear();
    return;
  }
  for (auto& entry : inspection.loss_by_context) entry.loss /= static_cast<double>(inspection.context_targets);
  inspection.effective_context = effective_context_of(inspection.loss_by_context);
}

}  // namespace

std::int64_t effective_context_of(const std::vector<ContextLoss>& losses) {
  constexpr double tolerance = 1.01;
  auto found = losses.back().tokens;
  for (auto entry = losses.rbegin(); entry != losses.rend() && entry->loss <= tolerance * losses.back().loss; ++entry)
    found = entry->tokens;
  return found;
}

SplitInspection inspect_split(const LoadedRun& run, const Task& task, const SplitLimits& limits) {
  require_transformer(run);
  const auto& config = run.experiment.config;
  SplitInspection inspection{.gradients = measure_gradients(run, task)};
  if (is<ClassificationConfig>(config.task)) return inspection;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(config.train.precision, run.device);
  inspection.loss_by_position = measure_positions(run, task, limits.batches);
  const auto* task_config = std::get_if<LanguageModelConfig>(&config.task);
  if (task_config != nullptr && packing_options(task_config->data.packing) == nullptr && !has_memory(run))
    measure_context(run, task, limits.context_targets, inspection);
  return inspection;
}

nlohmann::ordered_json to_json(const SplitInspection& inspection) {
  const auto& gradients = inspection.gradients;
  nlohmann::ordered_json json = {
      {"gradients",
       {{"stream", to_json(gradients.stream)}, {"mixer", gradients.mixer}, {"feed_forward", gradients.feed_forward}}}};
  for (const auto& [position, targets, loss] : inspection.loss_by_position)
    json["loss_by_position"].push_back({{"position", position}, {"targets", targets}, {"loss", loss}});
  for (const auto& [tokens, loss] : inspection.loss_by_context)
    json["loss_by_context"].push_back({{"tokens", tokens}, {"loss", loss}});
  if (inspection.effective_context) {
    json["context_targets"] = inspection.context_targets;
    json["effective_context"] = *inspection.effective_context;
  }
  return json;
}

}  // namespace metaformer
