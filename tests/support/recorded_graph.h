#pragma once
// A graph on the CPU that records the operators of its work, and replays them without the work's function, as a CUDA
// graph does: numbers of the host keep their recorded values, and tensors their addresses. Only operators are recorded.
// The kernels of cpu/ are called without one, so their results are NaN in a replay; float64 tensors do not use them.
// Only one file of a program may include this one, which registers its function with LibTorch.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/graph_by_hand.h"

namespace metaformer {

class RecordedGraph : public DeviceGraph {
 public:
  explicit RecordedGraph(GraphCounts& counts) : counts_(counts) {}

  // Runs the work to get its tensors, then undoes its effects on other tensors.
  void capture(const std::function<void()>& work) override {
    ++counts_.captures;
    recording_ = this;
    try {
      const c10::impl::IncludeDispatchKeyGuard records(key);
      work();
    } catch (...) {
      recording_ = nullptr;
      throw;
    }
    recording_ = nullptr;
    for (const auto& [storage, bytes] : before_) std::memcpy(storage->mutable_data(), bytes.data(), bytes.size());
    before_.clear();
    for (const auto& call : calls_)
      for (const auto& result : results_of(call))
        if (result.is_floating_point()) result.fill_(std::numeric_limits<double>::quiet_NaN());
  }

  void replay() override {
    ++counts_.replays;
    for (const auto& call : calls_) {
      if (makes_empty(call.op)) continue;
      auto stack = call.inputs;
      call.op.callBoxed(stack);
      const auto kept = results_of(call), fresh = results_of({call.op, call.inputs, stack});
      TORCH_CHECK(kept.size() == fresh.size(), call.op.schema().name(), " gave other tensors than when recorded");
      for (std::size_t i = 0; i < kept.size(); ++i) kept[i].copy_(fresh[i]);
    }
  }

  static void note(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard once(key);
    TORCH_CHECK(recording_ != nullptr && !reads_values(op), op.schema().name(), " needs the host");
    recording_->record(op, *stack);
  }

  static constexpr auto key = c10::DispatchKey::TESTING_ONLY_GenericMode;

 private:
  using Values = torch::jit::Stack;
  struct Call {
    c10::OperatorHandle op;
    Values inputs, outputs;
  };

  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const auto& arguments = op.schema().arguments();
    const Values inputs(stack.end() - std::ssize(arguments), stack.end());
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (const auto* alias = arguments[i].alias_info(); alias != nullptr && alias->isWrite())
        for (const auto& x : tensors_of({inputs[i]})) save(x);
    op.callBoxed(stack);
    calls_.push_back({op, inputs, {stack.end() - std::ssize(op.schema().returns()), stack.end()}});
  }

  void save(const torch::Tensor& x) {
    auto* storage = x.storage().unsafeGetStorageImpl();
    if (before_.contains(storage)) return;
    const auto* bytes = static_cast<const char*>(storage->data());
    before_.emplace(storage, std::vector<char>(bytes, bytes + storage->nbytes()));
  }

  static bool makes_empty(const c10::OperatorHandle& op) {
    const auto& name = op.schema().name();
    return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
  }

  static bool reads_values(const c10::OperatorHandle& op) {
    static const std::vector<std::string> readers = {"aten::item",       "aten::_local_scalar_dense",
                                                     "aten::is_nonzero", "aten::equal",
                                                     "aten::nonzero",    "aten::masked_select"};
    return std::ranges::find(readers, op.schema().name()) != readers.end();
  }

  static std::vector<torch::Tensor> tensors_of(const Values& values) {
    std::vector<torch::Tensor> all;
    for (const auto& value : values) {
      if (value.isTensor()) all.push_back(value.toTensor());
      if (value.isTensorList())
        for (const torch::Tensor& x : value.toTensorList()) all.push_back(x);
      if (value.isOptionalTensorList())
        for (const std::optional<torch::Tensor>& x : value.toOptionalTensorList())
          all.push_back(x.value_or(torch::Tensor()));
    }
    std::erase_if(all, [](const torch::Tensor& x) { return !x.defined(); });
    return all;
  }

  // The outputs that do not alias an input.
  static std::vector<torch::Tensor> results_of(const Call& call) {
    const auto inputs = tensors_of(call.inputs);
    auto results = tensors_of(call.outputs);
    std::erase_if(results, [&](const torch::Tensor& y) {
      return std::ranges::any_of(inputs, [&](const torch::Tensor& x) { return x.is_alias_of(y); });
    });
    return results;
  }

  static inline thread_local RecordedGraph* recording_ = nullptr;

  GraphCounts& counts_;
  std::vector<Call> calls_;
  std::map<c10::StorageImpl*, std::vector<char>> before_;  // storages that the work has changed, as they were
};

}  // namespace metaformer

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&metaformer::RecordedGraph::note>());
}
