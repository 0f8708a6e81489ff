#include "train/step/batch_loss.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "distributed/process_group.h"
#include "ops/recompute.h"

namespace metaformer {

static constexpr std::string_view prefix = "memory.";

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
    if (own.back().empty()) own.pop_back();  // fewer rows than slices
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

// The tensors are those of one state, which load() has checked.
void StepMemory::require_rows(const NamedTensors& whole, std::int64_t rows, const std::string& source) const {
  for (const auto& [name, tensor] : whole) {
    if (tensor.dim() == 0) continue;
    auto shape = tensor.sizes().vec();
    shape[static_cast<std::size_t>(passes_.front()->sequence_dimension(name))] = rows;
    require_shape(source, name, tensor, shape);
  }
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
  passes_.front()->load(whole, source);  // which checks it
  require_rows(whole, rows, source);
  for (std::size_t pass = 0; pass < passes_.size(); ++pass) passes_[pass]->load(part_of(whole, pass), source);
}

namespace {

// Summed over chunks of the tokens, whose logits are made one after the other, and again in backward.
torch::Tensor loss_in_chunks(const StepParts& parts, const Batch& batch, const torch::Tensor& hidden) {
  const auto hidden_td = hidden.flatten(0, -2), targets_t = wanted_targets_t(batch),
             weights_t = wanted_weights_t(batch);
  const auto tokens = targets_t.size(0), chunks = std::min(parts.config.train.loss_chunks, tokens);
  torch::Tensor sum;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto first = tokens * i / chunks, count = tokens * (i + 1) / chunks - first;
    Batch chunk;
    chunk.targets_bc = targets_t.narrow(0, first, count).unsqueeze(0);
    if (weights_t.defined()) chunk.target_weights_bc = weights_t.narrow(0, first, count).unsqueeze(0);
    const auto loss_of = [&parts, chunk](const torch::Tensor& part_td) {
      return parts.task.objective->loss(parts.model.logits_of(part_td.unsqueeze(0)), chunk);
    };
    const auto loss = recomputed(loss_of, hidden_td.narrow(0, first, count), parts.model.head_weights());
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

}  // namespace

torch::Tensor batch_loss(const StepParts& parts, const Batch& batch, const torch::Tensor& weight, Pass pass,
                         std::int64_t number, AutocastCasts casts) {
  const AutocastScope autocast(parts.config.train.precision, parts.device, casts);
  auto* memory = parts.memory != nullptr ? parts.memory->of_pass(number) : nullptr;
  const auto sum = parts.config.train.loss_chunks > 1
                       ? loss_in_chunks(parts, batch, parts.model.hidden(batch, memory, pass))
                       : parts.task.objective->loss(parts.model.forward(batch, memory, pass), batch);
  return sum / weight.to(sum.scalar_type());
}

torch::Tensor with_faults(torch::Tensor loss) {
  if (fault_strikes("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
  if (fault_strikes("overflow"))  // loss and gradients, as with a scale too large for fp16
    loss = loss * std::numeric_limits<float>::max() * std::numeric_limits<float>::max();
  return loss;
}

torch::Tensor scaled(const StepParts& parts, const torch::Tensor& loss) {
  if (!loss.requires_grad())
    throw Error(ExitCode::usage,
                "train.freeze: the loss depends on no parameter that is left, so that there is nothing to train");
  return parts.loss_scale == nullptr ? loss : loss * parts.loss_scale->factor();
}

}  // namespace metaformer
