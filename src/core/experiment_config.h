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

namespace metaformer {

enum class TaskKind { language_model, classification, sort };
template <>
struct EnumNames<TaskKind> {
  static constexpr std::array<std::string_view, 3> values = {"language_model", "classification", "sort"};
};

struct CharacterTokenizerOptions {
  static constexpr std::string_view kind = "character";
  static constexpr std::string_view summary = "one token per character (code point) of the corpus";
};

struct ByteTokenizerOptions {
  static constexpr std::string_view kind = "byte";
  static constexpr std::string_view summary = "one token per byte, 256 in all";
};

struct WordTokenizerOptions {
  static constexpr std::string_view kind = "word";
  static constexpr std::string_view summary = "one token per word or punctuation mark, for classification";
  std::int64_t vocabulary = 30000;
  std::int64_t min_count = 2;
  bool lowercase = true;
};

using TokenizerOptions = std::variant<CharacterTokenizerOptions, ByteTokenizerOptions, WordTokenizerOptions>;

template <class Visitor>
void visit(Visitor&, CharacterTokenizerOptions&) {}

template <class Visitor>
void visit(Visitor&, ByteTokenizerOptions&) {}

template <class Visitor>
void visit(Visitor& field, WordTokenizerOptions& o) {
  field("vocabulary", o.vocabulary, between(2, 1 << 24), "most frequent words kept, the unknown word included");
  field("min_count", o.min_count, between(1, 1 << 30), "rarer words of the training texts become the unknown word");
  field("lowercase", o.lowercase, "ASCII letters in lower case");
}

enum class TableFormat { automatic, csv, tsv };
template <>
struct EnumNames<TableFormat> {
  static constexpr std::array<std::string_view, 3> values = {"auto", "csv", "tsv"};
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
  double malformed_limit = 0;
  SortConfig sort;
  TokenizerOptions tokenizer = CharacterTokenizerOptions{};
};

template <class Visitor>
void visit(Visitor& field, DataConfig& c) {
  field("corpus", c.corpus, "a public corpus by name; see `metaformer data list`");
  field("path", c.path, "a UTF-8 text file to use instead of the named corpus; classification: a CSV or TSV table");
  field("validation_path", c.validation_path, "classification: a table held out for validation");
  field("test_path", c.test_path, "classification: a table for --split test");
  field("validation_fraction", c.validation_fraction, Range{.low = 0, .high = 0.9, .low_open = true},
        "share held out for validation: the end of a text, or the rows that a hash of their text picks");
  field("format", c.format, "of tables; csv knows quotes, tsv takes them as they are; auto: .csv, else tab-separated");
  field("header", c.header, "whether a table's first row names its columns; auto: when it holds the fields' names");
  field("text_field", c.text_field, "column of the text: its name in the header, or its number counted from 1");
  field("label_field", c.label_field, "column of the label: its name in the header, or its number counted from 1");
  field("malformed_limit", c.malformed_limit, between(0, 1), "largest tolerated share of malformed rows in a table");
  field("sort", c.sort, "the lists of task sort");
  field("tokenizer", c.tokenizer, "how text becomes tokens; classification starts from word");
}

enum class PositionKind { learned };
template <>
struct EnumNames<PositionKind> {
  static constexpr std::array<std::string_view, 1> values = {"learned"};
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
};

template <class Visitor>
void visit(Visitor& field, NormConfig& c) {
  field("kind", c.kind, "the normalisation");
  field("position", c.position, "pre: x + branch(norm(x)), a final norm; post: norm(x + branch(x)) (2017)");
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

struct ModelConfig {
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 64;
  double dropout = 0.0;
  PositionKind positions = PositionKind::learned;
  NormConfig norm;
  FeedForwardConfig feed_forward;
  bool bias = false;
  bool tie_embeddings = true;
  ClassifierHead head = ClassifierHead::mean_pooled;
  MixerOptions mixer = MetricOptions{};

  std::int64_t head_width() const { return width / heads; }
  std::int64_t hidden_width() const { return std::llround(static_cast<double>(width) * feed_forward.ratio); }
};

template <class Visitor>
void visit(Visitor& field, ModelConfig& c) {
  field("layers", c.layers, between(1, 1024), "blocks");
  field("heads", c.heads, between(1, 1024), "heads of the mixer; divides width");
  field("width", c.width, between(1, 65536), "model width d");
  field("context", c.context, between(1, 1 << 20), "tokens a model sees at once");
  field("dropout", c.dropout, from_to_below(0, 1), "on embeddings, attention scores and both branches");
  field("positions", c.positions, "how the model knows where a token stands");
  field("norm", c.norm, "normalisation of the branches");
  field("feed_forward", c.feed_forward, "the second branch of a block");
  field("bias", c.bias, "bias terms in linear layers and norms");
  field("tie_embeddings", c.tie_embeddings, "the output layer shares the token embedding's matrix");
  field("head", c.head,
        "classification: mean of the tokens' logits; a norm and logits of their mean; or of a class token in front");
  field("mixer", c.mixer, "the first branch of a block");
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
  std::array<double, 2> betas = {0.9, 0.99};
  double clip = 1.0;
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
  field("betas", c.betas, from_to_below(0, 1), "AdamW's decay rates of the two moments");
  field("clip", c.clip, at_least(0), "largest gradient norm; 0 switches clipping off");
  field("cuda_graph", c.cuda_graph,
        "on a CUDA device: replay the whole step as one graph, where nothing of it needs the host");
  field("log_interval", c.log_interval, between(1, most_steps), "steps between lines of metrics.jsonl");
  field("eval_interval", c.eval_interval, between(1, most_steps), "steps between evaluations");
  field("eval_mode", c.eval_mode,
        "during training: the whole validation split, or random batches of both splits (nanoGPT)");
  field("eval_batches", c.eval_batches, between(1, 1 << 20), "random batches per split for eval_mode: random");
  field("patience", c.patience, between(0, most_steps),
        "evaluations without a better validation loss after which training ends; 0: it never ends early");
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
