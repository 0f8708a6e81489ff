#include "model/recurrent_state.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr const char* length_name = "length";
constexpr const char* hidden_name = "hidden";
constexpr const char* cell_name = "cell";
constexpr const char* segment_name = "segment";

}  // namespace

RecurrentState& RecurrentState::of(ModelState& state) {
  auto* own = dynamic_cast<RecurrentState*>(&state);
  if (own == nullptr) throw Error(ExitCode::failure, "a recurrent model was given the state of another kind of model");
  return *own;
}

void RecurrentState::reset() {
  length_ = 0;
  states_ = {};
  segment_b1_ = torch::Tensor();
}

void RecurrentState::advance(std::int64_t tokens, const LayerStates& states, const torch::Tensor& segments_bc) {
  length_ += tokens;
  states_ = {.hidden_lbd = states.hidden_lbd.detach(), .cell_lbd = states.cell_lbd};
  if (has_cell_) states_.cell_lbd = states.cell_lbd.detach();
  // A copy: a view would keep the whole batch.
  segment_b1_ = segments_bc.defined() ? segments_bc.narrow(1, segments_bc.size(1) - 1, 1).clone() : torch::Tensor();
}

NamedTensors RecurrentState::tensors() const {
  if (length_ == 0) return {};
  NamedTensors all = {{length_name, torch::tensor(length_)}, {hidden_name, states_.hidden_lbd}};
  if (has_cell_) all.emplace_back(cell_name, states_.cell_lbd);
  if (segment_b1_.defined()) all.emplace_back(segment_name, segment_b1_);
  return all;
}

std::int64_t RecurrentState::sequence_dimension(const std::string& name) const { return name == segment_name ? 0 : 1; }

void RecurrentState::load(const NamedTensors& saved, const std::string& source) {
  RecurrentState loaded(layers_, width_, has_cell_, device_);
  auto rows = any_size;  // those of the first tensor, then the same in all others
  // A copy: what was read from a file is part of a larger buffer.
  const auto own = [&](const std::string& name, const torch::Tensor& tensor, std::vector<std::int64_t> shape) {
    const auto dimension = static_cast<std::size_t>(sequence_dimension(name));
    shape[dimension] = rows;
    require_shape(source, name, tensor, shape);
    rows = tensor.size(sequence_dimension(name));
    return tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
  };
  for (const auto& [name, tensor] : saved) {
    if (name == length_name)
      loaded.length_ = saved_length(source, name, tensor);
    else if (name == segment_name)
      loaded.segment_b1_ = own(name, tensor, {any_size, 1});
    else if (name == hidden_name)
      loaded.states_.hidden_lbd = own(name, tensor, {layers_, any_size, width_});
    else if (has_cell_ && name == cell_name)
      loaded.states_.cell_lbd = own(name, tensor, {layers_, any_size, width_});
    else
      fail_to_continue(source, fmt::format("this model has no {}", in_quotes(name)));
  }
  const bool is_whole = loaded.states_.hidden_lbd.defined() && loaded.states_.cell_lbd.defined() == has_cell_;
  if (!saved.empty() && !(is_whole && loaded.length_ > 0)) fail_to_continue(source, "a part of the state is missing");
  *this = std::move(loaded);
}

std::int64_t RecurrentState::bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : tensors())
    if (name != length_name) total += static_cast<std::int64_t>(tensor.nbytes());
  return total;
}

}  // namespace metaformer
