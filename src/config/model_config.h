#pragma once
// The model section of a config.

#include <algorithm>
#include <cmath>

#include "config/mixer_config.h"
#include "config/schema.h"

namespace metaformer {

// The embeddings of tokens.
enum class EmbeddingScale { none, sqrt_width, log_count_ratio };
constexpr std::array<std::string_view, 3> enum_names(EmbeddingScale) {
  return {"none", "sqrt_width", "log_count_ratio"};
}

// Embeddings of hashed n-grams of tokens, added to the token's own.
struct NgramEmbeddingConfig {
  std::int64_t order = 1;
  std::int64_t buckets = std::int64_t{1} << 18;

  void visit(auto& field) {
    field("order", order, between(1, 5),
          "adds the embeddings of the n-grams that end at a token, n from 2 to order, to the token's embedding; 1: no "
          "n-grams");
    field("buckets", buckets, between(1, 1 << 24), "rows of the table that n-grams are hashed to");
  }
};

struct NoRegionConfig : Named<"none", "a vector for each token"> {};

// Johnson and Zhang 2015, "Effective use of word order for text categorization with convolutional neural networks".
struct SequenceRegionConfig : Named<"sequence",
                                    "a vector for each region of tokens: the ReLU of a bias plus a vector for the "
                                    "token at each place (one-hot convolution, Johnson and Zhang 2015)"> {
  std::int64_t shortest = 2, longest = 3;

  std::int64_t sizes() const { return longest - shortest + 1; }
  std::int64_t places() const { return (shortest + longest) * sizes() / 2; }  // of all sizes

  void visit(auto& field) {
    field("shortest", shortest, between(1, 16), "tokens in the smallest regions");
    field("longest", longest, between(1, 16),
          "tokens in the largest regions; each size has an equal part of the features of model.width");
  }
};

using RegionConfig = std::variant<NoRegionConfig, SequenceRegionConfig>;

struct EmbeddingConfig {
  double std = 0.02, dropout = 0.0;
  EmbeddingScale scale = EmbeddingScale::none;
  NgramEmbeddingConfig ngrams;
  RegionConfig region;
  bool tie = true;

  void visit(auto& field) {
    field("std", std, positive,
          "standard deviation of the initial embeddings of tokens and n-grams; the larger, the less those of rare "
          "tokens and n-grams learn");
    field("dropout", dropout, from_to_below(0, 1),
          "dropout on features of the embeddings, the same ones at every token of a sequence");
    field("scale", scale,
          "factor of the embeddings: none; sqrt_width: the root of model.width (2017); log_count_ratio, only for "
          "classification: the absolute log-count ratio of the token or n-gram between the classes; default: "
          "sqrt_width with sinusoidal positions, else none");
    field("ngrams", ngrams, "classification: hashed n-grams beside the tokens");
    field("region", region, "classification: a vector for each token, or for the regions of tokens that end at it");
    field("tie", tie, "not for classification: the output layer shares the token embedding's matrix");
  }
};

// nullptr if every token has a vector of its own.
inline const SequenceRegionConfig* sequence_regions(const EmbeddingConfig& embedding) {
  return std::get_if<SequenceRegionConfig>(&embedding.region);
}

inline bool has_regions(const EmbeddingConfig& embedding) { return sequence_regions(embedding) != nullptr; }

// The parts of a block beside its mixer: norms, activations, the feed-forward branch.
enum class NormPosition { pre, post, both };
constexpr std::array<std::string_view, 3> enum_names(NormPosition) { return {"pre", "post", "both"}; }

// has_bias: whether there are bias terms if model.bias is true.
template <Literal name, Literal about, bool bias>
struct NormOptions : Named<name, about> {
  static constexpr bool has_bias = bias;
  NormPosition position = NormPosition::pre;
  bool final = true;
  double epsilon = 1e-5;

  void visit(auto& field) {
    field("position", position,
          "pre: x + branch(norm(x)), a final norm; post: norm(x + branch(x)) (2017); both: x + norm(branch(norm(x))), "
          "a final norm");
    field("final", final, "with position pre or both: a norm after the last block");
    field("epsilon", epsilon, above(0, 1), "added to the variance or mean square");
  }
};

using LayerNormConfig =
    NormOptions<"layer_norm", "mean 0 and variance 1 over the features of a token (Ba et al. 2016)", true>;
using RmsNormConfig =
    NormOptions<"rms_norm", "mean square 1 over the features of a token, without bias (Zhang and Sennrich 2019)",
                false>;
using NormConfig = std::variant<LayerNormConfig, RmsNormConfig>;

inline NormPosition position_of(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.position; }, norm);
}

inline bool has_bias(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.has_bias; }, norm);
}

inline double epsilon_of(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.epsilon; }, norm);
}

// Whether there is a norm after the last block; with post-norm the block already ends with one.
inline bool has_final_norm(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.position != NormPosition::post && options.final; }, norm);
}

struct GeluConfig : Named<"gelu", "x F(x), F: the normal distribution function (Hendrycks and Gimpel 2016)"> {};
struct GeluTanhConfig : Named<"gelu_tanh", "gelu approximated with a hyperbolic tangent, as in GPT-2"> {};
struct ReluConfig : Named<"relu", "max(x, 0)"> {};

struct SiluConfig : Named<"silu", "x / (1 + exp(-beta x)), also called swish (Ramachandran et al. 2017)"> {
  double beta = 1;

  void visit(auto& field) { field("beta", beta, positive, "steepness of the gate"); }
};

struct ReluSquaredConfig : Named<"relu_squared", "max(x, 0)^2 (So et al. 2021)"> {};

using ActivationConfig = std::variant<GeluConfig, GeluTanhConfig, ReluConfig, SiluConfig, ReluSquaredConfig>;

void visit_chunks(auto& field, std::int64_t& chunks) {
  field(
      "chunks", chunks, between(1, 1 << 16),
      "parts of the tokens that are computed one after the other, and recomputed in the backward pass, to save memory");
}

struct MlpConfig : Named<"mlp", "two linear layers with an activation between them"> {
  ActivationConfig activation;
  double ratio = 4;
  bool output_activation = false;
  std::int64_t chunks = 1;

  std::int64_t hidden_width(std::int64_t width) const { return std::llround(static_cast<double>(width) * ratio); }
  std::int64_t up_width(std::int64_t width) const { return hidden_width(width); }

  void visit(auto& field) {
    field("activation", activation, "activation of the hidden layer");
    field("ratio", ratio, above(0, 64), "hidden width over model width");
    field("output_activation", output_activation, "the activation follows the second layer, too");
    visit_chunks(field, chunks);
  }
};

struct GatedConfig
    : Named<"gated", "down(activation(gate x) * up x): SwiGLU with silu, GEGLU with gelu (Shazeer 2020)"> {
  ActivationConfig activation = SiluConfig{};
  double ratio = 8.0 / 3;
  std::int64_t chunks = 1;

  // The nearest multiple of 8, at least 8.
  std::int64_t hidden_width(std::int64_t width) const { return multiple_of_8(static_cast<double>(width) * ratio); }
  // Gate and up side by side.
  std::int64_t up_width(std::int64_t width) const { return 2 * hidden_width(width); }

  void visit(auto& field) {
    field("activation", activation, "activation of the gate");
    field("ratio", ratio, above(0, 64), "hidden width over model width; rounded to a multiple of 8");
    visit_chunks(field, chunks);
  }
};

struct NoFeedForwardConfig : Named<"none", "no feed-forward branch: a block consists of its mixer"> {
  static constexpr std::int64_t chunks = 1;
  std::int64_t hidden_width(std::int64_t) const { return 0; }
  std::int64_t up_width(std::int64_t) const { return 0; }
};

using FeedForwardConfig = std::variant<MlpConfig, GatedConfig, NoFeedForwardConfig>;

inline std::int64_t chunks_of(const FeedForwardConfig& feed_forward) {
  return std::visit([](const auto& options) { return options.chunks; }, feed_forward);
}

// Recurrent language models.
enum class RecurrentCell { lstm, gru };

struct RecurrentConfig {
  RecurrentCell cell = RecurrentCell::lstm;  // set by the kind
  std::int64_t layers = 2, width = 128, context = 64;
  bool carry_state = false;
  double dropout = 0.0;
  EmbeddingConfig embedding = {.std = 0.5};  // no norm stands before the layers

  // The number of matrices of a layer that read its input, and of those that read its state.
  std::int64_t gates() const { return cell == RecurrentCell::lstm ? 4 : 3; }

  void visit(auto& field) {
    field("layers", layers, between(1, 1024), "recurrent layers");
    field("width", width, between(1, 65536), "width of embeddings and of hidden states");
    field("context", context, between(1, 1 << 20),
          "tokens of a window, through which gradients flow (truncated back-propagation through time)");
    field("carry_state", carry_state,
          "batches read the text in order, and each window starts with the last state of the window before; false: "
          "windows start from zeros");
    field("dropout", dropout, from_to_below(0, 1),
          "dropout on embeddings, between layers and before the output layer, never between tokens (Zaremba et al. "
          "2014)");
    field("embedding", embedding, "embeddings of tokens");
  }
};

struct LstmConfig : RecurrentConfig, Named<"lstm", "long short-term memory (Hochreiter and Schmidhuber 1997)"> {
  LstmConfig() : RecurrentConfig{.cell = RecurrentCell::lstm} {}
};

struct GruConfig : RecurrentConfig, Named<"gru", "gated recurrent units (Cho et al. 2014)"> {
  GruConfig() : RecurrentConfig{.cell = RecurrentCell::gru} {}
};

// The feed-forward language model: y = b + U tanh(d + H x), x the embeddings of the last `window` tokens, side by side.
struct FeedForwardModelConfig : Named<"feed_forward", "one hidden layer over the last tokens (Bengio et al. 2003)"> {
  std::int64_t window = 8, width = 64, hidden = 256, context = 64;
  double dropout = 0.0;
  EmbeddingConfig embedding = {.std = 0.1, .tie = false};

  std::int64_t inputs() const { return window * width; }

  void visit(auto& field) {
    field("window", window, between(1, 1 << 16), "tokens from which the next token is predicted");
    field("width", width, between(1, 65536), "width of embeddings");
    field("hidden", hidden, between(1, 1 << 20), "units of the hidden layer");
    visit_context(field, context);
    field("dropout", dropout, from_to_below(0, 1), "dropout on embeddings and the hidden layer");
    field("embedding", embedding, "embeddings of tokens");
  }
};

// How the two branches of a block are composed.
enum class BlockKind { plain, reversible };
constexpr std::array<std::string_view, 2> enum_names(BlockKind) { return {"plain", "reversible"}; }

struct TransformerConfig : Named<"transformer", "blocks of a token mixer and a feed-forward branch (MetaFormer)"> {
  std::int64_t layers = 4, heads = 4, width = 128, context = 64, memory = 0;
  bool same_length = false;
  double dropout = 0.0;
  EmbeddingConfig embedding;
  PositionsConfig positions;
  NormConfig norm;
  bool residual = true;
  BlockKind blocks = BlockKind::plain;
  FeedForwardConfig feed_forward;
  bool bias = false;
  std::int64_t convolution = 0;
  MixerConfig mixer;                // of all blocks, if `mixers` is empty
  std::vector<MixerLayers> mixers;  // which the blocks have by turns

  const MixerConfig& mixer_of(std::int64_t layer) const {
    std::int64_t turn = 0;
    for (const auto& each : mixers) turn += each.layers;
    auto place = turn > 0 ? layer % turn : 0;
    for (const auto& each : mixers)
      if ((place -= each.layers) < 0) return each.mixer;
    return mixer;
  }
  // Whether no block before it has a mixer of the same kind.
  bool is_first_of_kind(std::int64_t layer) const {
    for (std::int64_t before = 0; before < layer; ++before)
      if (mixer_of(before).index() == mixer_of(layer).index()) return false;
    return true;
  }
  // How many blocks have each of the mixers.
  std::vector<std::pair<const MixerConfig*, std::int64_t>> blocks_by_mixer() const {
    std::vector<std::pair<const MixerConfig*, std::int64_t>> counts;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const auto* of_layer = &mixer_of(layer);
      const auto found = std::ranges::find(counts, of_layer, [](const auto& each) { return each.first; });
      if (found != counts.end())
        ++found->second;
      else
        counts.emplace_back(of_layer, 1);
    }
    return counts;
  }
  // Whether `holds` is true for the mixer of any block.
  bool any_mixer(bool (*holds)(const MixerConfig&)) const {
    const auto counts = blocks_by_mixer();
    return std::ranges::any_of(counts, [&](const auto& each) { return holds(*each.first); });
  }
  // Whether generation can go on past the context: every block has a state of fixed size, and there are no positions.
  bool has_endless_state() const {
    bool all = memory == 0 && is<NoPositionsConfig>(positions);
    for (std::int64_t layer = 0; layer < layers; ++layer) all = all && metaformer::has_endless_state(mixer_of(layer));
    return all;
  }
  // "metric"; for a list "gated_delta_net x 3, scaled_dot_product".
  std::string mixer_names() const {
    std::string names(mixers.empty() ? kind_of(mixer) : "");
    for (const auto& each : mixers) {
      names += (names.empty() ? "" : ", ") + std::string(kind_of(each.mixer));
      if (each.layers > 1) names += " x " + std::to_string(each.layers);
    }
    return names;
  }

  bool has_feed_forward() const { return !is<NoFeedForwardConfig>(feed_forward); }
  std::int64_t branches() const { return layers * (has_feed_forward() ? 2 : 1); }

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

  void visit(auto& field) {
    field("layers", layers, between(0, 1024), "blocks; 0 (classification): the head reads the embeddings");
    visit_sizes(field);
    field("memory", memory, between(0, 1 << 20),
          "tokens before the context whose vectors every block keeps; batches then read the text in order, as in "
          "Transformer-XL; 0: none");
    field("same_length", same_length, "every token sees only the last `memory` tokens, itself included");
    visit_stream(field);
    field("blocks", blocks,
          "plain: one residual stream; reversible: two streams, which the backward pass recomputes from their end, so "
          "that depth costs no memory (Reformer)");
    visit_branches(field);
  }

  // The sizes of blocks.
  void visit_sizes(auto& field) {
    field("heads", heads, between(1, 1024), "heads of the mixer; divides width");
    field("width", width, between(1, 65536), "model width d");
    visit_context(field, context);
  }
  void visit_stream(auto& field) {
    field("dropout", dropout, from_to_below(0, 1), "dropout on embeddings, attention scores and both branches");
    field("embedding", embedding, "embeddings of tokens");
    field("positions", positions, "encoding of the positions of tokens");
    field("norm", norm, "normalisation of the branches");
    field("residual", residual, "the input of a branch is added to its output");
  }
  void visit_branches(auto& field) {
    field("feed_forward", feed_forward, "the second branch of a block");
    field("bias", bias, "bias terms in linear layers and norms");
    field("convolution", convolution, between(0, 64),
          "tokens of a short convolution that is added to the input of a block's mixer (Canon layers, Allen-Zhu 2025); "
          "0: none");
    field("mixer", mixer, mixers,
          "the first branch of a block; or a list of mixers that the blocks take in turn: [{mixer: mamba2, layers: 3}, "
          "scaled_dot_product]");
  }
};

struct EncoderConfig {
  std::optional<std::int64_t> layers;
  MixerConfig mixer;
  std::vector<MixerLayers> mixers;

  void visit(auto& field) {
    field("layers", layers, between(1, 1024), "blocks of the encoder; null: as many as model.layers");
    field("mixer", mixer, mixers, "the first branch of the encoder's blocks, or a list of mixers");
  }
};

// The transformer of 2017 (Vaswani et al., section 3.1). The members of the base are those of the decoder, or of both
// stacks of blocks.
struct EncoderDecoderConfig : TransformerConfig {
  static constexpr std::string_view kind = "encoder_decoder";
  static constexpr std::string_view summary =
      "sequence_to_sequence: an encoder of the source, and a decoder that sees both and generates the target (2017)";
  MixerConfig cross_mixer;
  EncoderConfig encoder;
  bool shared_embedding = true;

  // The blocks that see the source, as a transformer.
  TransformerConfig encoder_blocks() const {
    TransformerConfig blocks = *this;
    blocks.layers = encoder.layers.value_or(layers);
    blocks.mixer = encoder.mixer;
    blocks.mixers = encoder.mixers;
    return blocks;
  }
  // The shape of cross-attention, which has no positions: those of two sequences cannot be compared.
  MixerShape cross_shape() const {
    auto shape = mixer_shape();
    shape.positions = NoPositionsConfig{};
    shape.crosses = true;
    return shape;
  }

  void visit(auto& field) {
    field("layers", layers, between(1, 1024), "blocks of the decoder");
    visit_sizes(field);
    visit_stream(field);
    visit_branches(field);
    field("cross_mixer", cross_mixer,
          "the branch of the decoder's blocks that attends to the source, between the other two: scaled_dot_product, "
          "differential, quadratic or metric");
    field("encoder", encoder, "the encoder of the source");
    field("shared_embedding", shared_embedding,
          "source and target share one table of embeddings; false: each has its own");
  }
};

// Logistic regression over the n-grams that a text has, scaled by naive Bayes' log-count ratios (Wang and Manning
// 2012).
struct LinearConfig : Named<"linear", "classification: logistic regression over n-grams, fitted at once"> {
  std::int64_t ngrams = 2;
  std::int64_t buckets = std::int64_t{1} << 22;
  bool naive_bayes = true;
  double cost = 1;
  std::int64_t context = 64;

  void visit(auto& field) {
    visit_context(field, context);
    field("ngrams", ngrams, between(1, 5), "longest sequence of tokens that forms a feature");
    field("buckets", buckets, between(1, 1 << 26), "features; n-grams are hashed to them");
    field("naive_bayes", naive_bayes,
          "scale features by their log-count ratio between the classes; false: all features by 1");
    field("cost", cost, positive, "cost of training errors, relative to the size of the weights (liblinear's C)");
  }
};

using ModelConfig =
    std::variant<TransformerConfig, EncoderDecoderConfig, LstmConfig, GruConfig, FeedForwardModelConfig, LinearConfig>;

inline std::int64_t context_of(const ModelConfig& model) {
  return std::visit([](const auto& options) { return options.context; }, model);
}

// The width of the vectors of tokens; 0 for a linear model, which has none.
inline std::int64_t width_of(const ModelConfig& model) {
  return std::visit(
      [](const auto& options) -> std::int64_t {
        if constexpr (requires { options.width; }) return options.width;
        return 0;
      },
      model);
}

// The options of a transformer's blocks, or of a decoder's; nullptr for a model without blocks.
inline const TransformerConfig* blocks_of(const ModelConfig& model) { return options_as<TransformerConfig>(model); }

// A recurrent model's options; nullptr for another kind.
inline const RecurrentConfig* recurrent(const ModelConfig& model) { return options_as<RecurrentConfig>(model); }

// The number of tokens before its context that a model remembers, for which it reads texts in order; 0: none. A carried
// state remembers all earlier tokens, and counts as one context.
inline std::int64_t tokens_before_segment(const ModelConfig& model) {
  if (const auto* options = recurrent(model)) return options->carry_state ? options->context : 0;
  const auto* transformer = std::get_if<TransformerConfig>(&model);
  return transformer != nullptr ? transformer->memory : 0;
}

// The key that makes a model read texts in order.
inline std::string_view order_key(const ModelConfig& model) {
  return recurrent(model) != nullptr ? "model.carry_state" : "model.memory";
}

}  // namespace metaformer
