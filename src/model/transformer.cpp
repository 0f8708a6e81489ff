#include "model/transformer.h"

#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/reversible.h"
#include "ops/dropout.h"

namespace metaformer {

namespace {

constexpr const char* seen_name = "length";
constexpr const char* place_name = "place";
constexpr const char* segments_name = "segments";

std::string name_of(std::size_t block) { return fmt::format("blocks.{}", block); }
std::string prefix_of(std::size_t block) { return name_of(block) + "."; }

}  // namespace

// The memory of a transformer in training (Transformer-XL, Dai et al. 2019, section 3.2): the inputs of each block for
// the tokens before a segment, or the states of mixers that carry one. No gradient flows into them; every step applies
// its own weights to these inputs.
class TransformerMemory : public ModelState {
 public:
  // For up to `capacity` tokens of blocks of that width. `carries_state`: for each block, whether its mixer carries a
  // state.
  TransformerMemory(std::vector<bool> carries_state, std::int64_t width, std::int64_t capacity, torch::Device device)
      : blocks_bmd(carries_state.size()),
        carries_state_(std::move(carries_state)),
        width_(width),
        capacity_(capacity),
        device_(device) {
    states.assign(carries_state_.size(), MixerState(/*capacity=*/0, device));
  }

  bool carries_state(std::size_t block) const { return carries_state_.at(block); }

  std::int64_t length() const override {  // tokens whose vectors it holds
    const auto holding = std::find_if(blocks_bmd.begin(), blocks_bmd.end(), [](const auto& x) { return x.defined(); });
    return holding == blocks_bmd.end() ? 0 : holding->size(1);
  }
  void reset() override { *this = empty(); }

  NamedTensors tensors() const override {
    NamedTensors all;
    for (std::size_t block = 0; block < states.size(); ++block)
      for (const auto& [name, tensor] : states[block].tensors()) all.emplace_back(prefix_of(block) + name, tensor);
    for (std::size_t block = 0; block < blocks_bmd.size(); ++block)
      if (blocks_bmd[block].defined()) all.emplace_back(name_of(block), blocks_bmd[block]);
    if (segments_bm.defined()) all.emplace_back(segments_name, segments_bm);
    return all;
  }

  void load(const NamedTensors& saved, const std::string& source) override {
    SavedTensors from(saved, source, device_);
    auto loaded = empty();
    for (std::size_t block = 0; block < states.size(); ++block)
      loaded.states[block].load(from.take_below(prefix_of(block)), source);
    auto rows = any_size, length = any_size;  // set by the first tensor, then required of all others
    for (std::size_t block = 0; block < blocks_bmd.size() && !saved.empty(); ++block) {
      if (carries_state_[block]) continue;
      auto& own = loaded.blocks_bmd[block];
      own = from.take(name_of(block), {rows, length, width_});
      rows = own.size(0);
      length = own.size(1);
      if (length > capacity_)
        fail_to_continue(source, fmt::format("{} holds {} tokens, and model.memory is {}", in_quotes(name_of(block)),
                                             length, capacity_));
    }
    if (from.contains(segments_name)) loaded.segments_bm = from.take(segments_name, {rows, length});
    from.require_empty();
    *this = std::move(loaded);
  }

  // Appends the newest tokens to those held of a block, or of the segments.
  void remember(torch::Tensor& held, const torch::Tensor& x) const {
    const torch::NoGradGuard no_grad;
    const auto all = held.defined() && x.size(1) < capacity_ ? torch::cat({held, x.detach()}, 1) : x.detach();
    const auto kept = std::min(capacity_, all.size(1));
    held = all.narrow(1, all.size(1) - kept, kept).clone(at::MemoryFormat::Contiguous);
  }

  std::vector<MixerState> states;         // of the blocks whose mixer carries a state
  std::vector<torch::Tensor> blocks_bmd;  // inputs of the other blocks; undefined: empty
  torch::Tensor segments_bm;              // of these inputs; undefined: one segment

 private:
  TransformerMemory empty() const { return {carries_state_, width_, capacity_, device_}; }

  std::vector<bool> carries_state_;
  std::int64_t width_, capacity_;
  torch::Device device_;
};

void TransformerState::reset() {
  length_ = place_ = remembered_ = 0;
  segments_be_ = place_1_ = torch::Tensor();
  for (auto& mixer : mixers_) mixer.reset();
}

bool TransformerState::prepare(std::int64_t tokens, std::int64_t context) {
  const bool begins = memory_ > 0 && place_ == context;
  if (begins) {
    remembered_ = std::min(memory_, remembered_ + place_);
    place_ = 0;
    for (auto& mixer : mixers_) mixer.keep_newest(memory_);
    if (segments_be_.defined()) segments_be_ = segments_be_.narrow(1, segments_be_.size(1) - remembered_, remembered_);
  }
  if (!endless_ && place_ + tokens > context)
    throw Error(ExitCode::failure,
                fmt::format("a sequence of {} tokens does not fit model.context {}", place_ + tokens, context));
  return begins;
}

void TransformerState::select(const torch::Tensor& rows_b) {
  batch_ = rows_b.size(0);
  if (segments_be_.defined()) segments_be_ = segments_be_.index_select(0, rows_b);
  for (auto& mixer : mixers_) mixer.select(rows_b);
}

torch::Tensor TransformerState::extend_segments(const torch::Tensor& segments_bc) {
  segments_be_ = segments_be_.defined() ? torch::cat({segments_be_, segments_bc}, 1) : segments_bc;
  return segments_be_;
}

NamedTensors TransformerState::tensors() const {
  NamedTensors all = {{seen_name, torch::tensor(length_)}, {place_name, torch::tensor(place_)}};
  if (segments_be_.defined()) all.emplace_back(segments_name, segments_be_);
  for (std::size_t block = 0; block < mixers_.size(); ++block)
    for (const auto& [name, tensor] : mixers_[block].tensors()) all.emplace_back(prefix_of(block) + name, tensor);
  return all;
}

void TransformerState::load(const NamedTensors& saved, const std::string& source) {
  SavedTensors from(saved, source, device_);
  const auto length = from.take_length(seen_name), place = from.take_length(place_name);
  torch::Tensor segments_be;
  if (from.contains(segments_name)) segments_be = from.take(segments_name, {batch_, any_size});
  auto loaded = mixers_;
  for (std::size_t block = 0; block < mixers_.size(); ++block) {
    const auto of_block = from.take_below(prefix_of(block));
    for (const auto& [name, tensor] : of_block)
      if (tensor.dim() < 2 || tensor.size(0) != batch_)
        fail_to_continue(source, fmt::format("{} is not of {} sequences", in_quotes(prefix_of(block) + name), batch_));
    loaded[block].load(of_block, source);
  }
  from.require_empty();
  mixers_ = std::move(loaded);
  length_ = length;
  place_ = place;
  remembered_ = std::min(memory_, length_ - place_);
  segments_be_ = segments_be;
}

torch::Tensor sinusoid_table_cd(const SinusoidalPositionsConfig& config, std::int64_t tokens, std::int64_t width) {
  const auto pair = torch::arange((width + 1) / 2, torch::kDouble);
  const auto frequency = torch::pow(config.base, -2 * pair / static_cast<double>(width));
  const auto angle = torch::outer(torch::arange(tokens, torch::kDouble), frequency);
  return torch::stack({angle.sin(), angle.cos()}, 2).flatten(1).narrow(1, 0, width);
}

namespace {

torch::Tensor scaled(Embedding& table, const torch::Tensor& scale_v1, const torch::Tensor& ids_bc) {
  auto x_bcd = table(ids_bc);
  return scale_v1.defined() ? x_bcd * torch::embedding(scale_v1, ids_bc) : x_bcd;
}

}  // namespace

// The first mixer with scores. If positions need it, all of these have keys of the same width (config/check.cpp).
static const MixerConfig& scoring_mixer(const TransformerConfig& config) {
  for (std::int64_t i = 0; i < config.layers; ++i)
    if (has_scores(config.mixer_of(i))) return config.mixer_of(i);
  return config.mixer;
}

TransformerImpl::TransformerImpl(const TransformerConfig& config, std::int64_t vocabulary, bool causal, Embedding table,
                                 const EncoderDecoderConfig* decoder)
    : config_(config), causal_(causal), embedding_factor_(factor_of(config.embedding, config.width)) {
  if (!table.is_empty())
    token_embedding_ = std::move(table);
  else if (const auto* regions = sequence_regions(config.embedding))
    region_embedding_ =
        register_module("region_embedding", RegionEmbedding(*regions, vocabulary, config.width, config.embedding.std));
  else
    token_embedding_ = register_module("token_embedding", Embedding(vocabulary, config.width, config.embedding.std));
  if (is<LearnedPositionsConfig>(config.positions))
    position_embedding_ = register_module("position_embedding", Embedding(config.context, config.width));
  if (const auto* sinusoidal = std::get_if<SinusoidalPositionsConfig>(&config.positions))
    sinusoids_cd_.emplace([options = *sinusoidal, width = config.width](std::int64_t tokens) {
      return sinusoid_table_cd(options, tokens, width);
    });
  if (config.embedding.ngrams.order > 1)
    ngram_embedding_ = register_module("ngram_embedding",
                                       Embedding(config.embedding.ngrams.buckets, config.width, config.embedding.std));
  const auto shape = config.mixer_shape();
  shared_positions_.emplace(*this, shape, key_width(scoring_mixer(config), shape), causal);
  if (config.embedding.scale == EmbeddingScale::log_count_ratio) {
    token_scale_v1_ = register_buffer("token_scale", torch::ones({vocabulary, 1}, module_device()));
    if (!ngram_embedding_.is_empty())
      ngram_scale_g1_ =
          register_buffer("ngram_scale", torch::ones({config.embedding.ngrams.buckets, 1}, module_device()));
  }
  auto blocks = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.push_back(decoder != nullptr ? Block(*decoder, i) : Block(config, i));
    blocks->push_back(blocks_.back());
  }
  if (config.layers > 0 && has_final_norm(config.norm))
    final_norm_ = register_module("final_norm", Norm(config.norm, config.width, config.bias));
}

const torch::Tensor& TransformerImpl::embedding_weight() const {
  return region_embedding_.is_empty() ? token_embedding_->weight() : region_embedding_->weight();
}

torch::Tensor TransformerImpl::position_table_cd(std::int64_t tokens) const {
  if (!position_embedding_.is_empty()) return position_embedding_->weight();
  const auto& like = embedding_weight();
  return sinusoids_cd_ ? sinusoids_cd_->of(std::max(tokens, config_.context), like.device(), like.scalar_type())
                       : torch::Tensor();
}

torch::Tensor TransformerImpl::positions_of(const Batch& batch, const Past& past) {
  const auto length = batch.ids_bc.size(1);
  const auto table_cd = position_table_cd(past.place + length);
  if (!table_cd.defined()) return {};
  if (batch.has_own_positions()) return torch::embedding(table_cd, positions_in_segments(batch.segments_bc));
  return past.place_1.defined() ? table_cd.index_select(0, past.place_1) : table_cd.narrow(0, past.place, length);
}

Visibility TransformerImpl::visibility_of(const Batch& batch, const Past& past, Pass& pass) {
  auto visibility = self_visibility(causal_, batch.segments_bc);
  if (batch.segments_bc.defined()) {  // with those of the tokens before the batch
    if (past.state != nullptr)
      visibility.key_segment_be = past.state->extend_segments(batch.segments_bc);
    else if (past.memory != nullptr && past.memory->segments_bm.defined())
      visibility.key_segment_be = torch::cat({past.memory->segments_bm, batch.segments_bc}, 1);
  }
  if (config_.same_length) visibility.window = config_.memory;
  visibility.place_1 = past.place_1;
  const auto queries = batch.ids_bc.size(1);
  shared_positions_->add_to(visibility, queries, past.tokens + queries, embedding_weight(), pass);
  return visibility;
}

void TransformerImpl::scale_embeddings(const torch::Tensor& tokens_v, const torch::Tensor& ngrams_g) {
  const torch::NoGradGuard no_grad;
  token_scale_v1_.narrow(0, 0, tokens_v.size(0)).copy_(tokens_v.unsqueeze(1));
  if (ngram_scale_g1_.defined()) ngram_scale_g1_.copy_(ngrams_g.unsqueeze(1));
}

torch::Tensor TransformerImpl::embed(const Batch& batch, const Past& past, Pass& pass) {
  auto x_bcd = region_embedding_.is_empty() ? scaled(token_embedding_, token_scale_v1_, batch.ids_bc)
                                            : region_embedding_->forward(batch);
  for (std::int64_t n = 2; n <= config_.embedding.ngrams.order; ++n) {
    const auto buckets_bc = ngram_buckets(batch.ids_bc, n, config_.embedding.ngrams.buckets,
                                          batch.has_own_positions() ? batch.segments_bc : torch::Tensor());
    x_bcd = x_bcd + scaled(ngram_embedding_, ngram_scale_g1_, buckets_bc);
  }
  if (embedding_factor_ != 1) x_bcd = x_bcd * embedding_factor_;
  if (const auto positions = positions_of(batch, past); positions.defined()) x_bcd = x_bcd + positions;
  return dropout(drop_features(x_bcd, config_.embedding.dropout, pass), config_.dropout, pass);
}

std::unique_ptr<ModelState> TransformerImpl::new_state(std::int64_t batch, std::int64_t capacity) const {
  return std::make_unique<TransformerState>(config_.layers, batch, capacity, config_.memory,
                                            embedding_weight().device(), config_.has_endless_state());
}

std::unique_ptr<ModelState> TransformerImpl::new_memory() const {
  if (config_.memory == 0) return nullptr;
  std::vector<bool> of_blocks;
  for (std::int64_t i = 0; i < config_.layers; ++i) of_blocks.push_back(carries_state(config_.mixer_of(i)));
  return std::make_unique<TransformerMemory>(std::move(of_blocks), config_.width, config_.memory,
                                             embedding_weight().device());
}

TransformerImpl::Past TransformerImpl::past_of(const Batch& batch, ModelState* given) const {
  const auto length = batch.ids_bc.size(1);
  if (given != nullptr && batch.begins) given->reset();
  if (auto* memory = dynamic_cast<TransformerMemory*>(given); memory != nullptr || given == nullptr) {
    if (length > config_.context && !batch.is_packed())  // packed rows have a class token for every text
      throw Error(ExitCode::failure,
                  fmt::format("a sequence of {} tokens does not fit model.context {}", length, config_.context));
    return {.memory = memory, .tokens = memory != nullptr ? memory->length() : 0};
  }
  auto& state = state_as<TransformerState>(*given);
  if (const auto& place_1 = state.place_on_device(); place_1.defined())
    return {.state = &state, .tokens = state.visible() - length, .place_1 = place_1};
  state.prepare(length, config_.context);
  return {.state = &state, .place = state.place(), .tokens = state.remembered() + state.place()};
}

// None if the next block also reads a memory.
NextNorm TransformerImpl::norm_after(std::size_t block, const Past& past) const {
  if (block + 1 < blocks_.size()) return past.memory == nullptr ? blocks_[block + 1]->first_norm() : NextNorm();
  return {final_norm_.is_empty() ? nullptr : final_norm_.get(), /*for_products=*/false};
}

torch::Tensor TransformerImpl::forward(const Batch& batch, ModelState* given, Pass& pass, const SourceView* source) {
  const auto past = past_of(batch, given);
  const auto visibility = visibility_of(batch, past, pass);
  NormedStream x = embed(batch, past, pass);
  pass.observe(StreamPoint::embedding, x.x_bcd);
  pass.first_values = {};
  const auto surroundings_of = [&](std::size_t block, const torch::Tensor& read_bcd) {
    BlockImpl::Surroundings surroundings{.visibility = visibility};
    if (past.state != nullptr) surroundings.state = &past.state->mixer(block);
    if (past.memory != nullptr && past.memory->carries_state(block)) {
      surroundings.state = &past.memory->states.at(block);
    } else if (past.memory != nullptr) {
      auto& held_bmd = past.memory->blocks_bmd.at(block);
      surroundings.memory_bmd = held_bmd;
      past.memory->remember(held_bmd, read_bcd);
    }
    if (source != nullptr) surroundings.source = &source->source;
    if (source != nullptr && source->states != nullptr) surroundings.source_state = &source->states->at(block);
    return surroundings;
  };
  if (config_.blocks == BlockKind::reversible) {
    const auto gradients = pass.probe == nullptr ? BlockGradients::by_inversion : BlockGradients::as_usual;
    x = through_reversible(blocks_, x.x_bcd, surroundings_of, gradients, pass);
  } else {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      x = blocks_[i]->forward(x, surroundings_of(i, x.x_bcd), norm_after(i, past), pass);
  }
  if (past.state != nullptr && !past.place_1.defined()) past.state->advance(batch.ids_bc.size(1));
  if (past.memory != nullptr && batch.segments_bc.defined() && past.memory->length() > 0)
    past.memory->remember(past.memory->segments_bm, batch.segments_bc);
  auto y_bcd = x.x_bcd;
  if (!final_norm_.is_empty()) y_bcd = x.normed_bcd.defined() ? x.normed_bcd : final_norm_(y_bcd);
  pass.observe(StreamPoint::output, y_bcd);
  return y_bcd;
}

}  // namespace metaformer
