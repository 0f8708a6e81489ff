#include "model/feed_forward_model.h"

#include <cmath>

namespace metaformer {

namespace {

constexpr const char* length_name = "length";
constexpr const char* ids_name = "ids";
constexpr const char* segments_name = "segments";

}  // namespace

WindowState::WindowState(std::int64_t batch, std::int64_t capacity, torch::Device device)
    : ids_bm_(torch::zeros({batch, capacity}, torch::TensorOptions().dtype(torch::kLong).device(device))),
      segments_bm_(torch::full_like(ids_bm_, no_segment)) {}

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
  SavedTensors from(saved, source, ids_bm_.device());
  const auto length = from.take_length(length_name);
  const auto ids_bm = from.take(ids_name, ids_bm_.sizes()), segments_bm = from.take(segments_name, ids_bm_.sizes());
  from.require_empty();
  length_ = length;
  ids_bm_ = ids_bm;
  segments_bm_ = segments_bm;
}

using torch::Tensor;

WindowHeadImpl::WindowHeadImpl(const FeedForwardModelConfig& config, std::int64_t vocabulary) {
  if (!config.embedding.tie)
    weight_vh_ =
        add_parameter("weight", {vocabulary, config.hidden}, {.init = Init::normal(), .decay = Decay::matrices});
  bias_v_ = add_parameter("bias", vocabulary, {.init = Init::zeros()});
}

FeedForwardModel::FeedForwardModel(const FeedForwardModelConfig& config, std::int64_t vocabulary)
    : config_(config),
      token_embedding_(register_module("token_embedding", Embedding(vocabulary, config.width, config.embedding.std))),
      padding_embedding_(register_module("padding_embedding", Embedding(1, config.width, config.embedding.std))),
      hidden_layer_(
          register_module("hidden_layer", Linear(config.inputs(), config.hidden, /*bias=*/true,
                                                 Init::uniform(1 / std::sqrt(static_cast<double>(config.inputs())))))),
      head_(register_module("head", WindowHead(config, vocabulary))) {}

// x of every token, [b, c, window d].
Tensor FeedForwardModel::windows(const Batch& batch, WindowState& before, Pass& pass) {
  const auto ids_be = torch::cat({before.ids_bm(), batch.ids_bc}, 1);
  const auto own_bc = batch.segments_bc.defined() ? batch.segments_bc : torch::zeros_like(batch.ids_bc);
  const auto segments_be = torch::cat({before.segments_bm(), own_bc}, 1);
  const auto factor = factor_of(config_.embedding, config_.width);
  const auto scaled = [&](const Tensor& x) { return factor == 1 ? x : x * factor; };
  const auto x_bed = drop_features(scaled(token_embedding_(ids_be)), config_.embedding.dropout, pass);
  const auto x_bcwd = x_bed.unfold(1, config_.window, 1).transpose(2, 3);
  const auto seen_bcw1 = (segments_be.unfold(1, config_.window, 1) == own_bc.unsqueeze(2)).unsqueeze(3);
  before.advance(ids_be, segments_be);
  const auto visible_bcwd = torch::where(seen_bcw1, x_bcwd, scaled(padding_embedding_->weight()));
  return dropout(visible_bcwd.flatten(2), config_.dropout, pass);
}

Tensor FeedForwardModel::hidden(const Batch& batch, ModelState* given, Pass& pass) {
  if (given != nullptr && batch.begins) given->reset();
  const auto fresh = given == nullptr ? new_state(batch.ids_bc.size(0), 0) : nullptr;
  const auto x_bci = windows(batch, state_as<WindowState>(given == nullptr ? *fresh : *given), pass);
  return dropout(torch::tanh(hidden_layer_(x_bci)), config_.dropout, pass);
}

Tensor FeedForwardModel::logits_of(const Tensor& hidden) const {
  return torch::linear(hidden, head_vh(), head_->bias());
}

std::unique_ptr<ModelState> FeedForwardModel::new_state(std::int64_t batch, std::int64_t) const {
  return std::make_unique<WindowState>(batch, config_.window - 1, token_embedding_->weight().device());
}

}  // namespace metaformer
