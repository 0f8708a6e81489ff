#include "tasks/network_predictor.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "ops/parallel.h"

namespace metaformer {

namespace {

std::int64_t slices_of(const Batch& batch) {
  constexpr std::int64_t tokens = 1024;                       // whose activations a core's cache holds
  if (!batch.ids_bc.is_cpu() || batch.is_packed()) return 1;  // labels of packed texts may be in any order
  return std::clamp<std::int64_t>(batch.ids_bc.numel() / tokens, 1, batch.ids_bc.size(0));
}

// A slice may have lost padding at the end of its rows, and has padding of its own behind its places.
torch::Tensor without_padding_of(const Batch& slice, const torch::Tensor& logits, std::int64_t length) {
  if (slice.places_t.defined()) return logits.narrow(0, 0, (slice.places_t >= 0).sum().item<std::int64_t>());
  if (logits.dim() < 3 || logits.size(1) == length) return logits;
  return torch::constant_pad_nd(logits, {0, 0, 0, length - logits.size(1)});
}

torch::Tensor join(const std::vector<torch::Tensor>& parts, const Batch& batch) {
  const auto logits = torch::cat(parts);
  if (!batch.places_t.defined()) return logits;
  return torch::constant_pad_nd(logits, {0, 0, 0, batch.places_t.size(0) - logits.size(0)});
}

}  // namespace

torch::Tensor NetworkPredictor::logits_of_slice(const Batch& slice, std::size_t number) const {
  if (states_.empty()) return model_.evaluate(slice);
  auto& state = states_.at(number);
  if (state == nullptr || slice.begins) state = model_.new_state(slice.ids_bc.size(0), model_.context());
  return model_.evaluate(slice, state.get());
}

torch::Tensor NetworkPredictor::logits(const Batch& batch) const {
  const auto rows = batch.ids_bc.size(0), slices = slices_of(batch);
  if (model_.remembers()) states_.resize(static_cast<std::size_t>(slices));
  if (slices == 1) return logits_of_slice(batch, 0);
  std::vector<torch::Tensor> parts(static_cast<std::size_t>(slices));
  const at::ThreadLocalState state;
  const auto type = at::autocast::get_autocast_dtype(torch::kCPU);
  at::parallel_for(0, slices, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::ThreadLocalStateGuard as_outside(state);
    at::autocast::set_autocast_dtype(torch::kCPU, type);
    for (auto i = begin; i < end; ++i) {
      const auto first = rows * i / slices, last = rows * (i + 1) / slices;
      const auto number = static_cast<std::size_t>(i);
      const auto slice = rows_of(batch, first, last - first);
      parts[number] = without_padding_of(slice, logits_of_slice(slice, number), batch.ids_bc.size(1));
    }
  });
  return join(parts, batch);
}

}  // namespace metaformer
