#pragma once
// The model section of a config.

#include <array>
#include <cmath>
#include <cstdint>

#include "config/mixer_options.h"
#include "config/schema.h"

namespace metaformer {

enum class EmbeddingScale { none, log_count_ratio };
template <>
struct EnumNames<EmbeddingScale> {
  static constexpr std::array<std::string_view, 2> values = {"none", "log_count_ratio"};
};

enum class PositionKind { learned, none };
template <>
struct EnumNames<PositionKind> {
  static constexpr std::array<std::string_view, 2> values = {"learned", "none"};
};

enum class NormKind { layer_norm };
template <>
struct EnumNames<NormKind> {
  static constexpr std::array<std::string_view, 1> values = {"layer_norm"};
};

enum class NormPosition { pre, post };
template <>
struct EnumNames<NormPosition> {
  static constexpr std::array<std::string_view, 2> values = {"pre", "post"};
};

struct NormConfig {
  NormKind kind = NormKind::layer_norm;
  NormPosition position = NormPosition::pre;
  bool final = true;
};

template <class Visitor>
void visit(Visitor& field, NormConfig& c) {
  field("kind", c.kind, "the normalisation");
  field("position", c.position, "pre: x + branch(norm(x)), a final norm; post: norm(x + branch(x)) (2017)");
  field("final", c.final, "pre-norm: a norm after the last block");
}

enum class Activation { gelu, relu };
template <>
struct EnumNames<Activation> {
  static constexpr std::array<std::string_view, 2> values = {"gelu", "relu"};
};

struct FeedForwardConfig {
  Activation activation = Activation::gelu;
  double ratio = 4;
};

template <class Visitor>
void visit(Visitor& field, FeedForwardConfig& c) {
  field("activation", c.activation, "between the two layers");
  field("ratio", c.ratio, Range{.low = 0, .high = 64, .low_open = true}, "hidden width over model width");
}

// What a classifier reads its classes from.
enum class ClassifierHead { per_token_mean, mean_pooled, first_token };
template <>
struct EnumNames<ClassifierHead> {
  static constexpr std::array<std::string_view, 3> values = {"per_token_mean", "mean_pooled", "first_token"};
};

// What classifies: a network, or the linear baseline over n-grams.
enum class ModelKind { transformer, linear };
template <>
struct EnumNames<ModelKind> {
  static constexpr std::array<std::string_view, 2> values = {"transformer", "linear"};
};

// Logistic regression over the n-grams that a text has, scaled by naive Bayes' log-count ratios (Wang and Manning
// 2012).
struct LinearConfig {
  std::int64_t ngrams = 2;
  std::int64_t buckets = std::int64_t{1} << 22;
  bool naive_bayes = true;
  double cost = 1;
};

template <class Visitor>
void visit(Visitor& field, LinearConfig& c) {
  field("ngrams", c.ngrams, between(1, 5), "longest sequence of tokens that is a feature");
  field("buckets", c.buckets, between(1, 1 << 26), "features; n-grams are hashed to them");
  field("naive_bayes", c.naive_bayes, "features scaled by their log-count ratio between the classes; else all by 1");
  field("cost", c.cost, positive, "of training errors, against the size of the weights (liblinear's C)");
}

// Embeddings of hashed n-grams of tokens, added to the token's own.
struct NgramEmbeddingConfig {
  std::int64_t order = 1;
  std::int64_t buckets = std::int64_t{1} << 18;
};

template <class Visitor>
void visit(Visitor& field, NgramEmbeddingConfig& c) {
  field("order", c.order, between(1, 5),
        "a token's embedding is joined by those of the 2-, ... order-grams ending there");
  field("buckets", c.buckets, between(1, 1 << 24), "rows of the table that n-grams are hashed to");
}

struct ModelConfig {
  ModelKind kind = ModelKind::transformer;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 64;
  double dropout = 0.0;
  double embedding_dropout = 0.0;
  double embedding_std = 0.02;
  EmbeddingScale embedding_scale = EmbeddingScale::none;
  NgramEmbeddingConfig ngram_embedding;
  PositionKind positions = PositionKind::learned;
  NormConfig norm;
  FeedForwardConfig feed_forward;
  bool bias = false;
  bool tie_embeddings = true;
  ClassifierHead head = ClassifierHead::mean_pooled;
  bool recalibrate = false;
  MixerOptions mixer = MetricOptions{};
  LinearConfig linear;

  std::int64_t head_width() const { return width / heads; }
  std::int64_t hidden_width() const { return std::llround(static_cast<double>(width) * feed_forward.ratio); }
};

template <class Visitor>
void visit(Visitor& field, ModelConfig& c) {
  field("kind", c.kind, "transformer, or for classification linear: the baseline over n-grams, told by model.linear");
  field("layers", c.layers, between(1, 1024), "blocks");
  field("heads", c.heads, between(1, 1024), "heads of the mixer; divides width");
  field("width", c.width, between(1, 65536), "model width d");
  field("context", c.context, between(1, 1 << 20), "tokens a model sees at once");
  field("dropout", c.dropout, from_to_below(0, 1), "on embeddings, attention scores and both branches");
  field("embedding_dropout", c.embedding_dropout, from_to_below(0, 1),
        "on features of the embeddings, the same ones at every token of a sequence");
  field("embedding_std", c.embedding_std, positive,
        "standard deviation of the embeddings of tokens and n-grams at the start; the larger, the less a rare one "
        "learns");
  field("embedding_scale", c.embedding_scale,
        "classification: log_count_ratio multiplies the embeddings of tokens and n-grams by how unequally the classes' "
        "training texts have them");
  field("ngram_embedding", c.ngram_embedding, "classification: hashed n-grams beside the tokens");
  field("positions", c.positions, "how the model knows where a token stands");
  field("norm", c.norm, "normalisation of the branches");
  field("feed_forward", c.feed_forward, "the second branch of a block");
  field("bias", c.bias, "bias terms in linear layers and norms");
  field("tie_embeddings", c.tie_embeddings, "the output layer shares the token embedding's matrix");
  field("head", c.head,
        "classification: mean of the tokens' logits; a norm and logits of their mean; or of a class token in front");
  field("recalibrate", c.recalibrate,
        "classification: before each evaluation, shift the logits to what the training loss would have them without "
        "noise and dropout");
  field("mixer", c.mixer, "the first branch of a block");
  field("linear", c.linear, "the linear classifier");
}

}  // namespace metaformer
