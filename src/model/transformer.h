#pragma once
// The trunk below every head: embeddings, a stack of blocks, and the final norm that pre-norm needs; and its state
// between calls.

#include <optional>
#include <vector>

#include "attention/score_positions.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/sequence_model.h"

namespace metaformer {

class TransformerMemory;

// The state of a transformer: the state of every block's mixer. With model.memory a text is read in segments of
// model.context tokens, each of which sees the end of the previous one.
class TransformerState : public ModelState {
 public:
  // For `batch` sequences of up to `capacity` tokens, and `memory` more that are remembered. `endless`: sequences may
  // have any number of tokens, because mixers keep states of fixed size.
  TransformerState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, std::int64_t memory,
                   torch::Device device, bool endless = false)
      : batch_(batch),
        memory_(memory),
        endless_(endless),
        device_(device),
        mixers_(static_cast<std::size_t>(layers), MixerState(capacity + memory, device)) {}

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override { return bytes_of(mixers_); }

  MixerState& mixer(std::size_t block) { return mixers_.at(block); }

  // The number of tokens of the current segment that are read, and of earlier ones that are remembered.
  std::int64_t place() const { return place_; }
  std::int64_t remembered() const { return remembered_; }

  // To be called before `tokens` tokens are read. With a memory, a new segment begins if the last one is full; then
  // returns true, and the content of the mixers' states has moved. Throws Error if the tokens do not fit into a segment
  // of `context` tokens.
  bool prepare(std::int64_t tokens, std::int64_t context);
  void advance(std::int64_t tokens) { length_ += tokens, place_ += tokens; }

  // For recorded work (DeviceGraph). stay_in_place() before the first token: all tensors keep their addresses.
  // read_at(): until reset(), each pass reads one token of every sequence, at the place that `place_1` (long [1] on the
  // device) has when the device computes the pass, and its shapes are those of `tokens` tokens that are seen. The
  // state does not count these tokens.
  void stay_in_place() {
    for (auto& mixer : mixers_) mixer.stay_in_place();
  }
  void read_at(const torch::Tensor& place_1, std::int64_t tokens) {
    place_1_ = place_1;
    visible_ = tokens;
    for (auto& mixer : mixers_) mixer.read_at(place_1, tokens);
  }
  const torch::Tensor& place_on_device() const { return place_1_; }  // undefined: the state counts tokens
  std::int64_t visible() const { return visible_; }

  // Sequence i gets the state that sequence rows_b[i] had; the number of sequences may change (MixerState::select).
  void select(const torch::Tensor& rows_b);

  // Appends the segments of new tokens. Returns those of all tokens that mixers hold, [b, e].
  torch::Tensor extend_segments(const torch::Tensor& segments_bc);

 private:
  std::int64_t batch_, memory_, length_ = 0, place_ = 0, remembered_ = 0;
  bool endless_;
  torch::Device device_;
  torch::Tensor segments_be_;  // undefined: none were given
  torch::Tensor place_1_;
  std::int64_t visible_ = 0;
  std::vector<MixerState> mixers_;
};

// PE(pos, 2i) = sin(pos / base^(2i / d)), PE(pos, 2i + 1) = the cosine of the same (Vaswani et al. 2017, section 3.5).
torch::Tensor sinusoid_table_cd(const SinusoidalPositionsConfig& config, std::int64_t tokens, std::int64_t width);

class TransformerImpl : public torch::nn::Module {
 public:
  // `table`: the embedding of tokens of another module, which this one shares; empty: it has its own. `decoder`: the
  // options of a decoder, whose blocks also see a source; nullptr for others.
  TransformerImpl(const TransformerConfig& config, std::int64_t vocabulary, bool causal,
                  Embedding table = Embedding(nullptr), const EncoderDecoderConfig* decoder = nullptr);

  // The source that a decoder sees, and the states in which its blocks hold it (nullptr: not held).
  struct SourceView {
    Source source;
    std::vector<MixerState>* states = nullptr;  // by block
  };

  // Hidden vectors [b, c, d]. Throws Error when the sequence is longer than the model's context. `source` is for
  // decoders, which need one.
  torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass, const SourceView* source = nullptr);

  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const;
  std::unique_ptr<ModelState> new_memory() const;

  // Factors of the embeddings of tokens (by id; a class token may be left out) and of n-grams (by bucket g); 1 until
  // set. Only for models with model.embedding.scale log_count_ratio.
  void scale_embeddings(const torch::Tensor& tokens_v, const torch::Tensor& ngrams_g);

  const TransformerConfig& config() const { return config_; }
  const torch::Tensor& token_table_vd() const { return token_embedding_->weight(); }  // not for region embeddings
  const Embedding& token_embedding() const { return token_embedding_; }               // likewise
  RegionEmbedding& region_embedding() { return region_embedding_; }                   // empty with token embeddings
  // The vectors that are added to the embeddings at positions 0 ... tokens - 1, or more; undefined: no vectors are
  // added.
  torch::Tensor position_table_cd(std::int64_t tokens) const;
  double embedding_factor() const { return embedding_factor_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const Norm& final_norm() const { return final_norm_; }  // may be empty

 private:
  // The past of a pass: the mixers' states if a sequence continues, or the memory of training.
  struct Past {
    TransformerState* state = nullptr;
    TransformerMemory* memory = nullptr;
    std::int64_t place = 0;      // of the first token in its segment
    std::int64_t tokens = 0;     // earlier tokens that are seen
    torch::Tensor place_1 = {};  // of the only token, on the device (TransformerState::read_at); or undefined
  };
  Past past_of(const Batch& batch, ModelState* given) const;
  torch::Tensor embed(const Batch& batch, const Past& past, Pass& pass);
  torch::Tensor positions_of(const Batch& batch, const Past& past);
  Visibility visibility_of(const Batch& batch, const Past& past, Pass& pass);
  NextNorm norm_after(std::size_t block, const Past& past) const;
  const torch::Tensor& embedding_weight() const;  // has the type and device of all embeddings

  TransformerConfig config_;
  bool causal_;
  Embedding token_embedding_{nullptr};                 // either this one, which may be another module's
  RegionEmbedding region_embedding_{nullptr};          // or this one
  double embedding_factor_;                            // of tokens and n-grams
  Embedding position_embedding_{nullptr};              // learned positions only
  mutable std::optional<PositionTable> sinusoids_cd_;  // sinusoidal positions only
  std::optional<SharedPositions> shared_positions_;    // made in the order of registration
  Embedding ngram_embedding_{nullptr};                 // n-grams only
  torch::Tensor token_scale_v1_, ngram_scale_g1_;      // embedding.scale log_count_ratio only
  std::vector<Block> blocks_;
  Norm final_norm_{nullptr};  // empty with post-norm, or if switched off
};
TORCH_MODULE(Transformer);

}  // namespace metaformer
