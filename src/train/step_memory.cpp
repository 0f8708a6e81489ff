#include "train/step_memory.h"

#include <algorithm>

namespace metaformer {

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

}  // namespace metaformer
