#pragma once
// The train section of a config.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/divergence_config.h"
#include "config/optimizer_config.h"
#include "config/schedule_config.h"
#include "config/schema.h"

namespace metaformer {

enum class Precision { fp32, bf16, tf32, fp16 };
template <>
struct EnumNames<Precision> {
  static constexpr std::array<std::string_view, 4> values = {"fp32", "bf16", "tf32", "fp16"};
};

struct LimitedEvaluationConfig {
  static constexpr std::string_view kind = "limited";
  static constexpr std::string_view summary = "the validation split, or the part of it that has `tokens` tokens";
  std::int64_t tokens = 1 << 17;
};

struct WholeEvaluationConfig {
  static constexpr std::string_view kind = "whole";
  static constexpr std::string_view summary = "the whole validation split";
};

struct RandomEvaluationConfig {
  static constexpr std::string_view kind = "random";
  static constexpr std::string_view summary = "random batches of both splits (nanoGPT); at the end as `limited`";
  std::int64_t batches = 20;
  std::int64_t tokens = 1 << 17;
};

using EvaluationConfig = std::variant<LimitedEvaluationConfig, WholeEvaluationConfig, RandomEvaluationConfig>;

template <class Visitor>
void visit(Visitor& field, LimitedEvaluationConfig& c) {
  field("tokens", c.tokens, between(1, most_steps), "most tokens of the validation split in an evaluation");
}

template <class Visitor>
void visit(Visitor&, WholeEvaluationConfig&) {}

template <class Visitor>
void visit(Visitor& field, RandomEvaluationConfig& c) {
  field("batches", c.batches, between(1, 1 << 20), "random batches per split");
  field("tokens", c.tokens, between(1, most_steps), "most tokens of the validation split in the evaluation at the end");
}

// An exponential moving average of the weights (Polyak and Juditsky 1992) that is evaluated and used in their place.
struct WeightAverageConfig {
  double decay = 0;
};

template <class Visitor>
void visit(Visitor& field, WeightAverageConfig& c) {
  field("decay", c.decay, from_to_below(0, 1),
        "share of the average that a step keeps: 0.999 averages over about 1,000 steps; 0: no average");
}

// All that has an effect on a linear model, which is fitted at once.
struct LinearTrainConfig {
  std::int64_t batch_size = 12;
  Precision precision = Precision::fp32;
  std::int64_t keep_checkpoints = 2;
  bool overfit_batch = false;
  std::int64_t seed = 1337;
};

struct TrainConfig : LinearTrainConfig {
  std::int64_t steps = 2000;
  std::optional<PathText> init_from;
  std::vector<std::string> freeze;
  double layer_rate_decay = 1;
  std::vector<std::string> rate_factors;
  std::int64_t accumulate = 1;
  double learning_rate = 1e-3;
  ScheduleConfig schedule;
  OptimizerConfig optimizer;
  bool shard_optimizer = false;
  double clip = 1.0;
  WeightAverageConfig weight_average;
  bool cuda_graph = true;
  std::int64_t cpu_slices = 1;
  std::int64_t loss_chunks = 1;
  std::int64_t log_interval = 10;
  std::int64_t eval_interval = 250;
  EvaluationConfig evaluation;
  std::int64_t patience = 0;
  std::int64_t checkpoint_interval = 250;
  std::int64_t diagnostics_interval = 0;
  DivergenceConfig divergence;
};

template <class Visitor>
void visit(Visitor& field, LinearTrainConfig& c) {
  field("batch_size", c.batch_size, between(1, 1 << 20),
        "sequences per forward pass; with task.batch_unit token: tokens");
  field("precision", c.precision,
        "fp32; bf16 or fp16 products with fp32 weights, fp16 with a loss scale; or tf32 products, on the CPU fp32");
  field("keep_checkpoints", c.keep_checkpoints, between(1, 1 << 20), "newest checkpoints kept, besides the best");
  field("overfit_batch", c.overfit_batch,
        "every step and every evaluation sees the first batch: its loss must fall to ~0");
  field("seed", c.seed, between(0, 9007199254740991.0), "of initialisation, batches and dropout");
}

template <class Visitor>
void visit(Visitor& field, TrainConfig& c) {
  field("steps", c.steps, between(1, most_steps), "optimiser steps");
  visit(field, static_cast<LinearTrainConfig&>(c));
  field("init_from", c.init_from,
        "a run, one of its checkpoints, or a Hugging Face folder of a GPT-2 or LLaMA, whose weights and tokenizer "
        "training begins with; {seed} in it stands for train.seed; null: random weights");
  field("freeze", c.freeze,
        "parameters that do not change: their names or the beginnings of these up to a dot, as "
        "[transformer.token_embedding, transformer.blocks.0]");
  field("layer_rate_decay", c.layer_rate_decay, Range{.low = 0, .high = 1, .low_open = true},
        "factor of the learning rate from the head to the last block, and from each block to the one before it; 1: the "
        "same rate everywhere");
  field(
      "rate_factors", c.rate_factors,
      "factors of the learning rate of parameters, as [mixer.projection=0.3, transformer.token_embedding=2]: a name is "
      "as in train.freeze, or a part of one between dots, which finds it in every block");
  field("accumulate", c.accumulate, between(1, 1 << 20),
        "forward passes per step; one step sees batch_size x accumulate");
  field("learning_rate", c.learning_rate, positive, "peak learning rate");
  field("schedule", c.schedule, "course of the learning rate after warm-up");
  field("optimizer", c.optimizer, "how gradients become updates");
  field("shard_optimizer", c.shard_optimizer,
        "of several processes each keeps an equal part of the optimiser's state (ZeRO stage 1)");
  field("clip", c.clip, at_least(0), "largest gradient norm; 0 switches clipping off");
  field("weight_average", c.weight_average, "mean of the weights of the last steps, for evaluation and use");
  field("cuda_graph", c.cuda_graph,
        "on a CUDA device: replay the whole step as one graph, where nothing of it needs the host");
  field(
      "cpu_slices", c.cpu_slices, between(1, 256),
      "on the CPU: parts of each batch that threads work on side by side, each part on one thread; 1: all threads work "
      "on each operator; default: one for each 384 tokens of a batch at width 128, fewer for narrower models and more "
      "for wider ones, 1 to 8, and 1 for models that are wider than 384 or have n-grams, regions or a bag");
  field("loss_chunks", c.loss_chunks, between(1, 1 << 16),
        "parts of the tokens whose logits and losses are computed one after the other, and again in backward, to save "
        "memory");
  field("log_interval", c.log_interval, between(1, most_steps), "steps between lines of metrics.jsonl");
  field("eval_interval", c.eval_interval, between(1, most_steps), "steps between evaluations");
  field("evaluation", c.evaluation, "what an evaluation during training covers");
  field("patience", c.patience, between(0, most_steps),
        "evaluations without a better validation loss (classification: task.selection_metric) after which training "
        "ends; 0: never");
  field("checkpoint_interval", c.checkpoint_interval, between(1, most_steps), "steps between checkpoints");
  field("diagnostics_interval", c.diagnostics_interval, between(0, most_steps),
        "steps between measurements of gradients, updates, norms, attention and score forms per block; 0: never");
  field("divergence", c.divergence, "numbers that are not finite, and spikes");
}

}  // namespace metaformer
