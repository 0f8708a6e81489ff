#pragma once
// The train section of a config.

#include <array>
#include <cstdint>
#include <optional>

#include "config/schema.h"

namespace metaformer {

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

// What of the validation split a classifier's best checkpoint has the best of.
enum class SelectionMetric { accuracy, loss, auc };
template <>
struct EnumNames<SelectionMetric> {
  static constexpr std::array<std::string_view, 3> values = {"accuracy", "loss", "auc"};
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
  SelectionMetric selection_metric = SelectionMetric::accuracy;
  std::int64_t patience = 0;
  std::int64_t checkpoint_interval = 250;
  std::int64_t keep_checkpoints = 2;
  std::int64_t diagnostics_interval = 0;
  std::int64_t sample_interval = 0;
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
  field("selection_metric", c.selection_metric,
        "classification: what chooses the best checkpoint on the validation split; auc and loss are less noisy than "
        "accuracy where it is small");
  field("patience", c.patience, between(0, most_steps),
        "evaluations without a better validation loss (classification: train.selection_metric) after which training "
        "ends; 0: never");
  field("checkpoint_interval", c.checkpoint_interval, between(1, most_steps), "steps between checkpoints");
  field("keep_checkpoints", c.keep_checkpoints, between(1, 1 << 20), "newest checkpoints kept, besides the best");
  field("diagnostics_interval", c.diagnostics_interval, between(0, most_steps),
        "steps between measurements of gradients, updates and score forms per block; 0: never");
  field("sample_interval", c.sample_interval, between(0, most_steps),
        "language models: steps between texts that the model writes into the log and samples.jsonl; 0: never");
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

}  // namespace metaformer
