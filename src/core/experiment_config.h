#pragma once
// The whole experiment as plain data. Names, defaults, ranges and help of every config key are here and nowhere else.

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "core/config_schema.h"
#include "core/mixer_options.h"
#include "core/tokenizer_options.h"

namespace metaformer {

enum class TaskKind { language_model, classification, sort };
template <>
struct EnumNames<TaskKind> {
  static constexpr std::array<std::string_view, 3> values = {"language_model", "classification", "sort"};
};

enum class TableFormat { automatic, csv, tsv, jsonl };
template <>
struct EnumNames<TableFormat> {
  static constexpr std::array<std::string_view, 4> values = {"auto", "csv", "tsv", "jsonl"};
};

enum class TableHeader { automatic, present, absent };
template <>
struct EnumNames<TableHeader> {
  static constexpr std::array<std::string_view, 3> values = {"auto", "present", "absent"};
};

// The array sorter (minGPT): lists of `length` numbers in 0 ... digits - 1.
struct SortConfig {
  std::int64_t length = 6;
  std::int64_t digits = 3;
};

template <class Visitor>
void visit(Visitor& field, SortConfig& c) {
  field("length", c.length, between(1, 4096), "numbers in a list; model.context must hold 2 length - 1");
  field("digits", c.digits, between(2, 65536), "numbers are 0 ... digits - 1");
}

// Ratings (stars) as classes: "negative" up to one number, "positive" from another; what lies between is left out.
struct RatingConfig {
  std::optional<double> positive_from;
  std::optional<double> negative_to;
};

template <class Visitor>
void visit(Visitor& field, RatingConfig& c) {
  field("positive_from", c.positive_from, "labels are numbers: 'positive' from this one on; null: labels are classes");
  field("negative_to", c.negative_to,
        "'negative' up to this one, ratings between the two are left out; null: all below positive_from");
}

// Which tokens of a text that is longer than model.context are kept.
enum class Truncation { head, tail, head_and_tail };
template <>
struct EnumNames<Truncation> {
  static constexpr std::array<std::string_view, 3> values = {"head", "tail", "head_and_tail"};
};

struct DataConfig {
  std::string corpus = "tinyshakespeare";
  std::optional<std::string> path;
  std::optional<std::string> validation_path;
  std::optional<std::string> test_path;
  double validation_fraction = 0.1;
  TableFormat format = TableFormat::automatic;
  TableHeader header = TableHeader::automatic;
  std::string text_field = "text";
  std::string label_field = "label";
  RatingConfig rating;
  double malformed_limit = 0;
  Truncation truncation = Truncation::head;
  bool cache = true;
  SortConfig sort;
  TokenizerOptions tokenizer = CharacterTokenizerOptions{};
};

template <class Visitor>
void visit(Visitor& field, DataConfig& c) {
  field("corpus", c.corpus, "a public corpus by name; see `metaformer data list`");
  field("path", c.path,
        "a UTF-8 text file to use instead of the named corpus; classification: a table (CSV, TSV, JSON lines)");
  field("validation_path", c.validation_path, "classification: a table held out for validation");
  field("test_path", c.test_path, "classification: a table for --split test");
  field("validation_fraction", c.validation_fraction, Range{.low = 0, .high = 0.9, .low_open = true},
        "share held out for validation: the end of a text, or the rows that a hash of their text picks");
  field("format", c.format,
        "of tables, gzipped or not; csv knows quotes, tsv takes them as they are, jsonl: an object per line; auto: by "
        "name, "
        "else tab-separated");
  field("header", c.header, "whether a table's first row names its columns; auto: when it holds the fields' names");
  field("text_field", c.text_field,
        "column of the text: its name in the header, or its number counted from 1; a member of JSON lines");
  field("label_field", c.label_field,
        "column of the label: its name in the header, or its number counted from 1; a member of JSON lines");
  field("rating", c.rating, "classes from ratings");
  field("malformed_limit", c.malformed_limit, between(0, 1), "largest tolerated share of malformed rows in a table");
  field("truncation", c.truncation, "which model.context tokens of a longer text classification sees");
  field("cache", c.cache, "tokens are kept between runs, under a hash of what they come from");
  field("sort", c.sort, "the lists of task sort");
  field("tokenizer", c.tokenizer, "how text becomes tokens; classification starts from word");
}

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

enum class Precision { fp32, bf16, tf32 };
template <>
struct EnumNames<Precision> {
  static constexpr std::array<std::string_view, 3> values = {"fp32", "bf16", "tf32"};
};

enum class ScheduleKind { cosine, linear, constant };
template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array<std::string_view, 3> values = {"cosine", "linear", "constant"};
};

enum class EvaluationMode { whole, random };
template <>
struct EnumNames<EvaluationMode> {
  static constexpr std::array<std::string_view, 2> values = {"whole", "random"};
};

enum class ClassWeights { none, balanced };
template <>
struct EnumNames<ClassWeights> {
  static constexpr std::array<std::string_view, 2> values = {"none", "balanced"};
};

enum class OnDivergence { stop, rollback };
template <>
struct EnumNames<OnDivergence> {
  static constexpr std::array<std::string_view, 2> values = {"stop", "rollback"};
};

enum class OnSpike { warn, skip };
template <>
struct EnumNames<OnSpike> {
  static constexpr std::array<std::string_view, 2> values = {"warn", "skip"};
};

struct TrainConfig {
  std::int64_t steps = 2000;
  std::int64_t batch_size = 12;
  std::int64_t accumulate = 1;
  Precision precision = Precision::fp32;
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::int64_t warmup_steps = 100;
  double weight_decay = 0.1;
  std::optional<double> embedding_weight_decay;
  std::array<double, 2> betas = {0.9, 0.99};
  double clip = 1.0;
  double label_smoothing = 0;
  ClassWeights class_weights = ClassWeights::none;
  double token_removal = 0;
  double token_unknown = 0;
  std::int64_t bucketing = 1;
  bool baselines = true;
  bool cuda_graph = true;
  std::int64_t log_interval = 10;
  std::int64_t eval_interval = 250;
  EvaluationMode eval_mode = EvaluationMode::whole;
  std::int64_t eval_batches = 20;
  std::int64_t patience = 0;
  std::int64_t checkpoint_interval = 250;
  std::int64_t keep_checkpoints = 2;
  std::int64_t diagnostics_interval = 0;
  bool overfit_batch = false;
  OnDivergence on_divergence = OnDivergence::stop;
  double rollback_factor = 0.5;
  std::int64_t max_rollbacks = 3;
  double spike_threshold = 0;
  OnSpike on_spike = OnSpike::warn;
  std::int64_t seed = 1337;
};

template <class Visitor>
void visit(Visitor& field, TrainConfig& c) {
  constexpr double most_steps = 1e12;
  field("steps", c.steps, between(1, most_steps), "optimiser steps");
  field("batch_size", c.batch_size, between(1, 1 << 20), "sequences per forward pass");
  field("accumulate", c.accumulate, between(1, 1 << 20),
        "forward passes per step; one step sees batch_size x accumulate");
  field("precision", c.precision, "fp32; bf16 products with fp32 weights; or tf32 products, which on the CPU are fp32");
  field("learning_rate", c.learning_rate, positive, "peak learning rate");
  field("min_learning_rate", c.min_learning_rate, at_least(0), "where cosine and linear schedules end");
  field("schedule", c.schedule, "course of the learning rate after warm-up");
  field("warmup_steps", c.warmup_steps, between(0, most_steps), "steps of linear warm-up");
  field("weight_decay", c.weight_decay, at_least(0), "AdamW decay, on matrices only");
  field("embedding_weight_decay", c.embedding_weight_decay, at_least(0),
        "the same of token, position and n-gram embeddings; null: weight_decay");
  field("betas", c.betas, from_to_below(0, 1), "AdamW's decay rates of the two moments");
  field("clip", c.clip, at_least(0), "largest gradient norm; 0 switches clipping off");
  field("label_smoothing", c.label_smoothing, from_to_below(0, 1),
        "classification: share of every target that all classes divide among them");
  field("class_weights", c.class_weights, "classification: balanced weighs a text by 1 / the share of its class");
  field("token_removal", c.token_removal, from_to_below(0, 1),
        "classification: probability that a training text's token is left out, drawn anew every epoch");
  field("token_unknown", c.token_unknown, from_to_below(0, 1),
        "classification: probability that a training text's token becomes the unknown token");
  field("bucketing", c.bucketing, between(1, 1 << 20),
        "classification: steps whose texts are sorted by length together, so that little is padded; 1: none are");
  field("baselines", c.baselines,
        "classification: what always the most frequent class, and a linear model over n-grams, would get");
  field("cuda_graph", c.cuda_graph,
        "on a CUDA device: replay the whole step as one graph, where nothing of it needs the host");
  field("log_interval", c.log_interval, between(1, most_steps), "steps between lines of metrics.jsonl");
  field("eval_interval", c.eval_interval, between(1, most_steps), "steps between evaluations");
  field("eval_mode", c.eval_mode,
        "during training: the whole validation split, or random batches of both splits (nanoGPT)");
  field("eval_batches", c.eval_batches, between(1, 1 << 20), "random batches per split for eval_mode: random");
  field("patience", c.patience, between(0, most_steps),
        "evaluations without a better validation loss (classification: accuracy) after which training ends; 0: never");
  field("checkpoint_interval", c.checkpoint_interval, between(1, most_steps), "steps between checkpoints");
  field("keep_checkpoints", c.keep_checkpoints, between(1, 1 << 20), "newest checkpoints kept, besides the best");
  field("diagnostics_interval", c.diagnostics_interval, between(0, most_steps),
        "steps between measurements of gradients, updates and score forms per block; 0: never");
  field("overfit_batch", c.overfit_batch,
        "every step and every evaluation sees the first batch: its loss must fall to ~0");
  field("on_divergence", c.on_divergence,
        "when loss, gradients or weights are not finite: stop (exit code 4), or go back to the last good checkpoint");
  field("rollback_factor", c.rollback_factor, Range{.low = 0, .high = 1, .low_open = true},
        "what every rollback multiplies the learning rate by");
  field("max_rollbacks", c.max_rollbacks, between(1, 1000), "rollbacks before giving up with exit code 4");
  field("spike_threshold", c.spike_threshold, between(0, 1e6),
        "standard deviations above its running mean from which a log gradient norm is a spike; 0: never");
  field("on_spike", c.on_spike, "warn, or skip the step's update too");
  field("seed", c.seed, between(0, 9007199254740991.0), "of initialisation, batches and dropout");
}

struct ExperimentConfig {
  TaskKind task = TaskKind::language_model;
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
};

template <class Visitor>
void visit(Visitor& field, ExperimentConfig& c) {
  field("task", c.task, "what is learned");
  field("data", c.data, "what it is learned from");
  field("model", c.model, "the network");
  field("train", c.train, "how it is trained");
}

}  // namespace metaformer
