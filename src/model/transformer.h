#pragma once
// Embeddings, a stack of blocks, and the final norm that pre-norm needs: the trunk that every head sits on.

#include <optional>
#include <vector>

#include "attention/score_positions.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/sequence_model.h"

namespace metaformer {

class TransformerMemory;
class TransformerState;

class TransformerImpl : public torch::nn::Module {
 public:
  TransformerImpl(const TransformerConfig& config, std::int64_t vocabulary, bool causal);

  // An encoder that reads another module's table of tokens.
  TransformerImpl(const TransformerConfig& config, std::int64_t vocabulary, bool causal, Embedding table);

  // A decoder.
  TransformerImpl(const EncoderDecoderConfig& config, std::int64_t vocabulary);

  // What a decoder sees besides its own tokens, and what its blocks hold of that (nullptr: nothing is held).
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
  const torch::Tensor& token_table_vd() const { return token_embedding_->weight(); }  // not of region embeddings
  const Embedding& token_embedding() const { return token_embedding_; }               // the same
  RegionEmbedding& region_embedding() { return region_embedding_; }                   // empty: tokens have vectors
  // What is added to the embeddings of tokens at positions 0 ... tokens - 1, or more; undefined: nothing.
  const torch::Tensor& position_table_cd(std::int64_t tokens) const;
  double embedding_factor() const { return embedding_factor_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const Norm& final_norm() const { return final_norm_; }  // may be empty

 private:
  TransformerImpl(const TransformerConfig& config, std::int64_t vocabulary, bool causal, Embedding table,
                  const EncoderDecoderConfig* decoder);

  // What comes before the tokens of a pass: caches of mixers where a sequence goes on, or the memory of training.
  struct Past {
    TransformerState* state = nullptr;
    TransformerMemory* memory = nullptr;
    std::int64_t place = 0;   // of the first token in its segment
    std::int64_t tokens = 0;  // that are seen
  };
  Past past_of(const Batch& batch, ModelState* given) const;
  torch::Tensor embed(const Batch& batch, std::int64_t first_position, Pass& pass);
  torch::Tensor positions_of(const Batch& batch, std::int64_t first_position);
  Visibility visibility_of(const Batch& batch, const Past& past, Pass& pass);
  const torch::Tensor& embedding_weight() const;  // one of type and device of all

  TransformerConfig config_;
  bool causal_;
  Embedding token_embedding_{nullptr};             // this one, which may be another module's
  RegionEmbedding region_embedding_{nullptr};      // or this one
  double embedding_factor_;                        // of tokens and n-grams
  Embedding position_embedding_{nullptr};          // learned positions only
  mutable torch::Tensor sinusoids_cd_;             // sinusoidal positions only; grows for longer contexts
  std::shared_ptr<ScoreBias> score_bias_;          // of positions that are added to scores
  std::optional<DistanceTable> distances_;         // transformer_xl positions only, as are these:
  DistanceBiases distance_biases_{nullptr};        // of all layers
  Embedding ngram_embedding_{nullptr};             // n-grams only
  torch::Tensor token_scale_v1_, ngram_scale_g1_;  // embedding.scale log_count_ratio only
  std::vector<Block> blocks_;
  Norm final_norm_{nullptr};  // not of post-norm, unless switched off
};
TORCH_MODULE(Transformer);

}  // namespace metaformer
