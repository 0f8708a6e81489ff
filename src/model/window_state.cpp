#include "model/window_state.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr const char* length_name = "length";
constexpr const char* ids_name = "ids";
constexpr const char* segments_name = "segments";

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: cannot go on from it: {}", source, what));
}

}  // namespace

WindowState::WindowState(std::int64_t batch, std::int64_t capacity, torch::Device device)
    : ids_bm_(torch::zeros({batch, capacity}, torch::TensorOptions().dtype(torch::kLong).device(device))),
      segments_bm_(torch::full_like(ids_bm_, no_segment)) {}

WindowState& WindowState::of(ModelState& state) {
  auto* own = dynamic_cast<WindowState*>(&state);
  if (own == nullptr)
    throw Error(ExitCode::failure, "a feed-forward model was given the state of another kind of model");
  return *own;
}

void WindowState::reset() {
  length_ = 0;
  ids_bm_ = torch::zeros_like(ids_bm_);
  segments_bm_ = torch::full_like(segments_bm_, no_segment);
}

void WindowState::advance(const torch::Tensor& all_ids_be, const torch::Tensor& all_segments_be) {
  const auto held = ids_bm_.size(1), all = all_ids_be.size(1);
  length_ += all - held;
  // Copies: views would keep the whole batch.
  ids_bm_ = all_ids_be.narrow(1, all - held, held).clone();
  segments_bm_ = all_segments_be.narrow(1, all - held, held).clone();
}

NamedTensors WindowState::tensors() const {
  return {{length_name, torch::tensor(length_)}, {ids_name, ids_bm_}, {segments_name, segments_bm_}};
}

void WindowState::load(const NamedTensors& saved, const std::string& source) {
  const auto find = [&](const char* name) {
    for (const auto& [own_name, tensor] : saved)
      if (own_name == name) return tensor;
    fail(source, fmt::format("it has no {}", in_quotes(name)));
  };
  for (const auto& [name, tensor] : saved)
    if (name != length_name && name != ids_name && name != segments_name)
      fail(source, fmt::format("this model has no {}", in_quotes(name)));
  const auto length = find(length_name), ids_bm = find(ids_name), segments_bm = find(segments_name);
  if (ids_bm.sizes() != ids_bm_.sizes() || segments_bm.sizes() != ids_bm_.sizes())
    fail(source, fmt::format("it is not of {} sequences and {} tokens", ids_bm_.size(0), ids_bm_.size(1)));
  length_ = length.item<std::int64_t>();
  const auto own = [&](const torch::Tensor& tensor) {
    return tensor.to(ids_bm_.device(), /*non_blocking=*/false, /*copy=*/true);
  };
  segments_bm_ = own(segments_bm);
  ids_bm_ = own(ids_bm);
}

std::int64_t WindowState::bytes() const { return static_cast<std::int64_t>(ids_bm_.nbytes() + segments_bm_.nbytes()); }

}  // namespace metaformer
