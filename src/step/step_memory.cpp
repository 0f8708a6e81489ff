#include "step/step_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace metaformer {

static std::string prefix_of(std::size_t pass) { return fmt::format("memory.{}.", pass); }

StepMemory::StepMemory(const SequenceModel& model, std::int64_t passes) {
  for (std::int64_t pass = 0; pass < passes; ++pass) {
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

NamedTensors StepMemory::tensors() const {
  NamedTensors all;
  for (std::size_t pass = 0; pass < passes_.size(); ++pass)
    for (const auto& [name, tensor] : passes_[pass]->tensors()) all.emplace_back(prefix_of(pass) + name, tensor);
  return all;
}

void StepMemory::take(NamedTensors& saved, const std::string& source) {
  for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
    const auto prefix = prefix_of(pass);
    const auto own = std::stable_partition(saved.begin(), saved.end(),
                                           [&](const auto& entry) { return !entry.first.starts_with(prefix); });
    NamedTensors of_pass;
    for (auto entry = own; entry != saved.end(); ++entry)
      of_pass.emplace_back(entry->first.substr(prefix.size()), entry->second);
    saved.erase(own, saved.end());
    passes_[pass]->load(of_pass, source);
  }
}

}  // namespace metaformer
