#pragma once
// The model section of a config.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "config/block_config.h"
#include "config/embedding_config.h"
#include "config/feed_forward_model_config.h"
#include "config/mixer_config.h"
#include "config/model_fields.h"
#include "config/positions_config.h"
#include "config/recurrent_config.h"
#include "config/schema.h"

namespace metaformer {

// How the two branches of a block are composed.
enum class BlockKind { plain, reversible };
template <>
struct EnumNames<BlockKind> {
  static constexpr std::array<std::string_view, 2> values = {"plain", "reversible"};
};

struct TransformerConfig {
  static constexpr std::string_view kind = "transformer";
  static constexpr std::string_view summary = "blocks of a token mixer and a feed-forward branch (MetaFormer)";
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 64;
  std::int64_t memory = 0;
  bool same_length = false;
  double dropout = 0.0;
  EmbeddingConfig embedding;
  PositionsConfig positions;
  NormConfig norm;
  bool residual = true;
  BlockKind blocks = BlockKind::plain;
  FeedForwardConfig feed_forward;
  bool bias = false;
  MixerConfig mixer;

  std::int64_t head_width() const { return width / heads; }
  MixerShape mixer_shape() const {
    return {
        .width = width, .heads = heads, .context = context, .dropout = dropout, .bias = bias, .positions = positions};
  }
  std::int64_t hidden_width() const {
    return std::visit([&](const auto& options) { return options.hidden_width(width); }, feed_forward);
  }
  // Outputs of the first linear layer of the feed-forward branch.
  std::int64_t up_width() const {
    return std::visit([&](const auto& options) { return options.up_width(width); }, feed_forward);
  }
};

struct EncoderConfig {
  std::optional<std::int64_t> layers;
  MixerConfig mixer;
};

// The transformer of 2017 (Vaswani et al., section 3.1). What is the base's is the decoder's or of both.
struct EncoderDecoderConfig : TransformerConfig {
  static constexpr std::string_view kind = "encoder_decoder";
  static constexpr std::string_view summary =
      "sequence_to_sequence: blocks that see the source, and blocks that write the target and see both (2017)";
  MixerConfig cross_mixer;
  EncoderConfig encoder;
  bool shared_embedding = true;

  // The blocks that see the source, as a transformer.
  TransformerConfig encoder_blocks() const {
    TransformerConfig blocks = *this;
    blocks.layers = encoder.layers.value_or(layers);
    blocks.mixer = encoder.mixer;
    return blocks;
  }
  // Of the mixer that shows a target the source. Positions say where a token stands in its own sequence.
  MixerShape cross_shape() const {
    auto shape = mixer_shape();
    shape.positions = NoPositionsConfig{};
    shape.crosses = true;
    return shape;
  }
};

// Logistic regression over the n-grams that a text has, scaled by naive Bayes' log-count ratios (Wang and Manning
// 2012).
struct LinearConfig {
  static constexpr std::string_view kind = "linear";
  static constexpr std::string_view summary = "classification: logistic regression over n-grams, fitted at once";
  std::int64_t ngrams = 2;
  std::int64_t buckets = std::int64_t{1} << 22;
  bool naive_bayes = true;
  double cost = 1;
  std::int64_t context = 64;
};

using ModelConfig =
    std::variant<TransformerConfig, EncoderDecoderConfig, LstmConfig, GruConfig, FeedForwardModelConfig, LinearConfig>;

inline std::int64_t context_of(const ModelConfig& model) {
  return std::visit([](const auto& options) { return options.context; }, model);
}

// Of the vectors that tokens become; 0 for a linear model, which has none.
inline std::int64_t width_of(const ModelConfig& model) {
  return std::visit(
      [](const auto& options) -> std::int64_t {
        if constexpr (requires { options.width; }) return options.width;
        return 0;
      },
      model);
}

// The options of a transformer's blocks, or of a decoder's; nullptr for a model without blocks.
inline const TransformerConfig* blocks_of(const ModelConfig& model) {
  if (const auto* both = std::get_if<EncoderDecoderConfig>(&model)) return both;
  return std::get_if<TransformerConfig>(&model);
}

// A recurrent model's options; nullptr for another kind.
inline const RecurrentConfig* recurrent(const ModelConfig& model) {
  if (const auto* lstm = std::get_if<LstmConfig>(&model)) return lstm;
  return std::get_if<GruConfig>(&model);
}

// Tokens before a segment that a model knows of, so that it reads texts in order; 0: none. A state that is carried
// knows of all of them, and counts as one segment.
inline std::int64_t tokens_before_segment(const ModelConfig& model) {
  if (const auto* options = recurrent(model)) return options->carry_state ? options->context : 0;
  const auto* transformer = std::get_if<TransformerConfig>(&model);
  return transformer != nullptr ? transformer->memory : 0;
}

// The key that makes a model read texts in order.
inline std::string_view order_key(const ModelConfig& model) {
  return recurrent(model) != nullptr ? "model.carry_state" : "model.memory";
}

// What blocks are made of.
template <class Visitor>
void visit_sizes(Visitor& field, TransformerConfig& c) {
  field("heads", c.heads, between(1, 1024), "heads of the mixer; divides width");
  field("width", c.width, between(1, 65536), "model width d");
  visit_context(field, c.context);
}
template <class Visitor>
void visit_stream(Visitor& field, TransformerConfig& c) {
  field("dropout", c.dropout, from_to_below(0, 1), "on embeddings, attention scores and both branches");
  field("embedding", c.embedding, "embeddings of tokens");
  field("positions", c.positions, "how the model knows where a token stands");
  field("norm", c.norm, "normalisation of the branches");
  field("residual", c.residual, "the input of a branch is added to its output");
}
template <class Visitor>
void visit_branches(Visitor& field, TransformerConfig& c) {
  field("feed_forward", c.feed_forward, "the second branch of a block");
  field("bias", c.bias, "bias terms in linear layers and norms");
  field("mixer", c.mixer, "the first branch of a block");
}

template <class Visitor>
void visit(Visitor& field, TransformerConfig& c) {
  field("layers", c.layers, between(0, 1024), "blocks; 0: classification: the head reads the embeddings");
  visit_sizes(field, c);
  field("memory", c.memory, between(0, 1 << 20),
        "tokens before the context of which every block keeps the vectors; batches then read the text in order, as in "
        "Transformer-XL; 0: none");
  field("same_length", c.same_length, "every token sees as many tokens as `memory` says, itself included, and no more");
  visit_stream(field, c);
  field("blocks", c.blocks,
        "plain: one residual stream; reversible: two, from whose end backward computes them again, so that depth costs "
        "no memory (Reformer)");
  visit_branches(field, c);
}

template <class Visitor>
void visit(Visitor& field, EncoderConfig& c) {
  field("layers", c.layers, between(1, 1024), "blocks that see the source; null: as many as model.layers");
  field("mixer", c.mixer, "the first branch of these blocks");
}

template <class Visitor>
void visit(Visitor& field, EncoderDecoderConfig& c) {
  field("layers", c.layers, between(1, 1024), "blocks that write the target");
  visit_sizes(field, c);
  visit_stream(field, c);
  visit_branches(field, c);
  field("cross_mixer", c.cross_mixer,
        "the branch by which these blocks see the source, between the other two: scaled_dot_product, quadratic or "
        "metric");
  field("encoder", c.encoder, "the blocks that see the source");
  field("shared_embedding", c.shared_embedding, "both sides have one table of embeddings; else each has its own");
}

template <class Visitor>
void visit(Visitor& field, LinearConfig& c) {
  visit_context(field, c.context);
  field("ngrams", c.ngrams, between(1, 5), "longest sequence of tokens that is a feature");
  field("buckets", c.buckets, between(1, 1 << 26), "features; n-grams are hashed to them");
  field("naive_bayes", c.naive_bayes, "features scaled by their log-count ratio between the classes; else all by 1");
  field("cost", c.cost, positive, "of training errors, against the size of the weights (liblinear's C)");
}

}  // namespace metaformer
