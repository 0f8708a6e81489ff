#include "model/feed_forward_model.h"

#include <cmath>

namespace metaformer {

using torch::Tensor;

namespace {

constexpr const char* length_name = "length";
constexpr const char* ids_name = "ids";
constexpr const char* segments_name = "segments";

}  // namespace

// The state of a model that sees a fixed number of tokens: the newest ones.
class WindowState : public ModelState {
 public:
  // For `batch` sequences and the `capacity` newest tokens.
  WindowState(std::int64_t batch, std::int64_t capacity, torch::Device device)
      : ids_bm(torch::zeros({batch, capacity}, torch::TensorOptions().dtype(torch::kLong).device(device))),
        segments_bm(torch::full_like(ids_bm, no_segment)) {}

  std::int64_t length() const override { return length_; }
  void reset() override { *this = WindowState(ids_bm.size(0), ids_bm.size(1), ids_bm.device()); }

  NamedTensors tensors() const override {
    return {{length_name, torch::tensor(length_)}, {ids_name, ids_bm}, {segments_name, segments_bm}};
  }

  void load(const NamedTensors& saved, const std::string& source) override {
    SavedTensors from(saved, source, ids_bm.device());
    auto loaded = *this;
    loaded.length_ = from.take_length(length_name);
    loaded.ids_bm = from.take(ids_name, ids_bm.sizes());
    loaded.segments_bm = from.take(segments_name, ids_bm.sizes());
    from.require_empty();
    *this = std::move(loaded);
  }

  // Adds new tokens. The arguments are the held tokens followed by the new ones.
  void advance(const Tensor& all_ids_be, const Tensor& all_segments_be) {
    const auto held = ids_bm.size(1), all = all_ids_be.size(1);
    length_ += all - held;
    // Copies: views would keep the whole batch.
    ids_bm = all_ids_be.narrow(1, all - held, held).clone();
    segments_bm = all_segments_be.narrow(1, all - held, held).clone();
  }

  // The newest tokens and their segments, [b, m], the newest last. Places without a token: id 0 of the segment
  // no_segment.
  Tensor ids_bm, segments_bm;

 private:
  static constexpr std::int64_t no_segment = -2;
  std::int64_t length_ = 0;
};

FeedForwardModel::FeedForwardModel(const FeedForwardModelConfig& config, std::int64_t vocabulary)
    : config_(config),
      token_embedding_(register_module("token_embedding", Embedding(vocabulary, config.width, config.embedding.std))),
      padding_embedding_(register_module("padding_embedding", Embedding(1, config.width, config.embedding.std))),
      hidden_layer_(
          register_module("hidden_layer", Linear(config.inputs(), config.hidden, /*bias=*/true,
                                                 Init::uniform(1 / std::sqrt(static_cast<double>(config.inputs())))))) {
  const auto head = register_module("head", std::make_shared<Layer>());
  head_vh_ = config.embedding.tie ? token_embedding_->weight()
                                  : head->add_parameter("weight", {vocabulary, config.hidden},
                                                        {.init = Init::normal(), .decay = Decay::matrices});
  head_bias_v_ = head->add_parameter("bias", vocabulary, {.init = Init::zeros()});
}

// The inputs x of the hidden layer for every token, [b, c, window d].
Tensor FeedForwardModel::windows(const Batch& batch, WindowState& before, Pass& pass) {
  const auto ids_be = torch::cat({before.ids_bm, batch.ids_bc}, 1);
  const auto own_bc = batch.segments_bc.defined() ? batch.segments_bc : torch::zeros_like(batch.ids_bc);
  const auto segments_be = torch::cat({before.segments_bm, own_bc}, 1);
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
  return wanted_rows(dropout(torch::tanh(hidden_layer_(x_bci)), config_.dropout, pass), batch);
}

std::unique_ptr<ModelState> FeedForwardModel::new_state(std::int64_t batch, std::int64_t) const {
  return std::make_unique<WindowState>(batch, config_.window - 1, token_embedding_->weight().device());
}

}  // namespace metaformer
