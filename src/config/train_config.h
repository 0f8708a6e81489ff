#pragma once
// The train section of a config.

#include "config/schema.h"

namespace metaformer {

// The course of the learning rate.

void visit_warmup(auto& field, std::int64_t& steps, double fewest = 0) {
  field("warmup_steps", steps, between(fewest, most_steps), "steps of linear warm-up");
}

// From train.learning_rate down to a floor.
struct FallingScheduleConfig {
  std::int64_t warmup_steps = 100;
  double floor = 1e-4;

  void visit(auto& field) {
    field("floor", floor, at_least(0),
          "final learning rate: of the last step (trapezoid), or of the step after it; default: 1e-4, or a tenth of a "
          "train.learning_rate below 1e-4");
    visit_warmup(field, warmup_steps);
  }
};

struct CosineScheduleConfig
    : FallingScheduleConfig,
      Named<"cosine", "half a cosine from train.learning_rate to floor, which the step after the last would have"> {};

struct LinearScheduleConfig
    : FallingScheduleConfig,
      Named<"linear", "a straight line from train.learning_rate to floor, which the step after the last would have"> {};

template <Literal name, Literal about, int fewest_steps>
struct WarmupScheduleConfig : Named<name, about> {
  std::int64_t warmup_steps = 100;

  void visit(auto& field) { visit_warmup(field, warmup_steps, fewest_steps); }
};

using ConstantScheduleConfig = WarmupScheduleConfig<"constant", "train.learning_rate throughout", 0>;
using InverseSqrtScheduleConfig =
    WarmupScheduleConfig<"inverse_sqrt", "train.learning_rate x sqrt(warmup_steps / step), steps from 0", 1>;
using NoamScheduleConfig =
    WarmupScheduleConfig<"noam",
                         "train.learning_rate / sqrt(model.width) x min(1 / sqrt(step), step / warmup_steps^1.5), "
                         "steps from 1 (Vaswani et al. 2017)",
                         1>;

struct TrapezoidScheduleConfig
    : FallingScheduleConfig,
      Named<"trapezoid",
            "train.learning_rate, then a straight line to floor over the last decay_steps; the last step has floor"> {
  std::int64_t decay_steps = 400;

  void visit(auto& field) {
    field("decay_steps", decay_steps, between(1, most_steps),
          "steps from train.learning_rate to floor, at the end of training");
    FallingScheduleConfig::visit(field);
  }
};

using ScheduleConfig = std::variant<CosineScheduleConfig, LinearScheduleConfig, ConstantScheduleConfig,
                                    InverseSqrtScheduleConfig, NoamScheduleConfig, TrapezoidScheduleConfig>;

inline std::int64_t warmup_steps(const ScheduleConfig& schedule) {
  return std::visit([](const auto& options) { return options.warmup_steps; }, schedule);
}

// The optimiser.

// Which parameters decay, and how fast; the meaning of decay depends on the optimiser.
struct WeightDecayConfig {
  double weight_decay = 0;
  std::optional<double> embedding_weight_decay;

  void visit(auto& field) {
    field("weight_decay", weight_decay, at_least(0), "decay of the weights; applied to matrices only");
    field("embedding_weight_decay", embedding_weight_decay, at_least(0),
          "decay of the embeddings of tokens, positions and n-grams; null: as weight_decay");
  }
};

// The two running moments of Adam (Kingma and Ba 2015).
struct MomentsConfig {
  std::array<double, 2> betas = {0.9, 0.99};
  double epsilon = 1e-8;

  void visit(auto& field) {
    field("betas", betas, from_to_below(0, 1), "decay rates of the two moments");
    field("epsilon", epsilon, positive, "added to the root of the second moment");
  }
};

struct AdamOptions : MomentsConfig, WeightDecayConfig {
  void visit(auto& field) {
    MomentsConfig::visit(field);
    WeightDecayConfig::visit(field);
  }
};

struct AdamWConfig : AdamOptions, Named<"adamw", "Adam with decoupled weight decay (Loshchilov and Hutter 2019)"> {
  AdamWConfig() { weight_decay = 0.1; }
};

struct AdamConfig : AdamOptions,
                    Named<"adam", "Adam (Kingma and Ba 2015); weight_decay times a weight is added to its gradient"> {};

struct SgdConfig : WeightDecayConfig,
                   Named<"sgd", "stochastic gradient descent; weight_decay times a weight is added to its gradient"> {
  double momentum = 0;

  void visit(auto& field) {
    field("momentum", momentum, from_to_below(0, 1), "fraction of the previous update's direction that is kept");
    WeightDecayConfig::visit(field);
  }
};

struct MuonConfig
    : AdamOptions,
      Named<"muon", "orthogonalised momentum for the matrices of the blocks (Jordan et al. 2024), AdamW for the rest"> {
  double momentum = 0.95;
  std::int64_t iterations = 5;
  MuonConfig() { weight_decay = 0.1; }

  void visit(auto& field) {
    field("momentum", momentum, from_to_below(0, 1),
          "decay rate of the running mean of the matrices' gradients (Nesterov's form)");
    field("iterations", iterations, between(1, 100), "Newton-Schulz iterations that orthogonalise the momentum");
    AdamOptions::visit(field);
  }
};

struct AdagradConfig : WeightDecayConfig,
                       Named<"adagrad",
                             "a rate for each weight that falls with the sum of its squared gradients (Duchi et al. "
                             "2011); weight_decay times a weight is added to its gradient"> {
  double epsilon = 1e-10;

  void visit(auto& field) {
    field("epsilon", epsilon, positive, "added to the root of the sum of squared gradients");
    WeightDecayConfig::visit(field);
  }
};

using OptimizerConfig = std::variant<AdamWConfig, AdamConfig, SgdConfig, MuonConfig, AdagradConfig>;

// The reaction to numbers that are not finite, and to a gradient that is far larger than those before.
struct StopConfig : Named<"stop", "training ends with exit code 4"> {};

struct RollbackConfig : Named<"rollback", "go back to the last good checkpoint with a lower learning rate"> {
  double factor = 0.5;
  std::int64_t limit = 3;

  void visit(auto& field) {
    field("factor", factor, above(0, 1), "factor of the learning rate at every rollback");
    field("limit", limit, between(1, 1000), "rollbacks before giving up with exit code 4");
  }
};

using DivergenceAction = std::variant<StopConfig, RollbackConfig>;

enum class SpikeAction { warn, skip };
constexpr std::array<std::string_view, 2> enum_names(SpikeAction) { return {"warn", "skip"}; }

struct SpikesConfig {
  double threshold = 0;
  SpikeAction action = SpikeAction::warn;

  void visit(auto& field) {
    field("threshold", threshold, between(0, 1e6),
          "a log gradient norm this many standard deviations above its running mean is a spike; 0: never");
    field("action", action, "warn: log a warning; skip: also skip the step's update");
  }
};

struct DivergenceConfig {
  DivergenceAction action;
  SpikesConfig spikes;

  void visit(auto& field) {
    field("action", action, "reaction to a loss, gradients or weights that are not finite");
    field("spikes", spikes, "gradients far larger than those before");
  }
};

enum class Precision { fp32, bf16, tf32, fp16 };
constexpr std::array<std::string_view, 4> enum_names(Precision) { return {"fp32", "bf16", "tf32", "fp16"}; }

struct LimitedEvaluationConfig : Named<"limited", "the validation split, or a part of it with `tokens` tokens"> {
  std::int64_t tokens = 1 << 17;

  void visit(auto& field) {
    field("tokens", tokens, between(1, most_steps),
          "largest number of tokens of the validation split in an evaluation");
  }
};

struct WholeEvaluationConfig : Named<"whole", "the whole validation split"> {};

struct RandomEvaluationConfig
    : Named<"random", "random batches of both splits (nanoGPT); at the end also as `limited`"> {
  std::int64_t batches = 20, tokens = 1 << 17;

  void visit(auto& field) {
    field("batches", batches, between(1, 1 << 20), "random batches per split");
    field("tokens", tokens, between(1, most_steps),
          "largest number of tokens of the validation split in the evaluation at the end");
  }
};

using EvaluationConfig = std::variant<LimitedEvaluationConfig, WholeEvaluationConfig, RandomEvaluationConfig>;

// An exponential moving average of the weights (Polyak and Juditsky 1992) that is evaluated and used in their place.
struct WeightAverageConfig {
  double decay = 0;

  void visit(auto& field) {
    field("decay", decay, from_to_below(0, 1),
          "fraction of the average that a step keeps: 0.999 averages over about 1,000 steps; 0: no average");
  }
};

// Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685). A matrix W of the initial weights becomes
// W + alpha / rank B A with trained factors B and A, and W itself does not change.
struct LoraConfig {
  std::int64_t rank = 0;
  double alpha = 8;
  std::vector<std::string> targets = {"mixer"};
  std::vector<std::string> full;

  void visit(auto& field) {
    field("rank", rank, between(0, 4096),
          "rows of A and columns of B; 0: no adapters, the weights themselves are trained");
    field("alpha", alpha, positive, "the product B A is multiplied by alpha / rank");
    field("targets", targets,
          "matrices of the blocks that get an adapter, such as [mixer.query_key_value, feed_forward], by name as in "
          "train.rate_factors; [mixer]: all matrices of the mixers");
    field("full", full,
          "parameters that are trained themselves, besides the adapters, by name as in train.freeze, such as [head]");
  }
};

// The options of training that also apply to the linear model, which is fitted in one step.
struct LinearTrainConfig {
  std::int64_t batch_size = 12;
  Precision precision = Precision::fp32;
  std::int64_t keep_checkpoints = 2;
  bool overfit_batch = false;
  std::int64_t seed = 1337;

  void visit(auto& field) {
    field("batch_size", batch_size, between(1, 1 << 20),
          "sequences per forward pass; with task.batch_unit token: tokens");
    field("precision", precision,
          "fp32; bf16 or fp16 products with fp32 weights, fp16 with a loss scale; or tf32 products, on the CPU fp32");
    field("keep_checkpoints", keep_checkpoints, between(1, 1 << 20), "newest checkpoints kept, besides the best");
    field("overfit_batch", overfit_batch,
          "every step and every evaluation uses the first batch, whose loss must fall to nearly 0");
    field("seed", seed, between(0, 9007199254740991.0), "seed of initialisation, batches and dropout");
  }
};

struct TrainConfig : LinearTrainConfig {
  std::int64_t steps = 2000;  // with `epochs` not known before the data are read (train/run.cpp)
  std::optional<double> epochs;
  std::optional<PathText> init_from;
  LoraConfig lora;
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
  std::int64_t cpu_slices = 1, loss_chunks = 1;
  std::int64_t log_interval = 10, eval_interval = 250;
  EvaluationConfig evaluation;
  std::int64_t patience = 0, checkpoint_interval = 250, diagnostics_interval = 0;
  DivergenceConfig divergence;

  void visit(auto& field) {
    field("steps", steps, between(1, most_steps), "optimiser steps");
    field("epochs", epochs, above(0, most_steps),
          "times that training sees the training split, which may be a fraction: gives the number of steps in place of "
          "train.steps; null: train.steps gives it");
    LinearTrainConfig::visit(field);
    field("init_from", init_from,
          "source of the initial weights and the tokenizer: a run, one of its checkpoints, or a Hugging Face folder of "
          "a GPT-2 or LLaMA; {seed} in the path stands for train.seed; null: random weights");
    field("lora", lora, "low-rank adapters of the initial weights");
    field("freeze", freeze,
          "parameters that are not trained, by name or by the beginning of a name up to a dot, such as "
          "[transformer.token_embedding, transformer.blocks.0]");
    field("layer_rate_decay", layer_rate_decay, above(0, 1),
          "factor of the learning rate from the head to the last block, and from each block to the one before it; 1: "
          "the same rate everywhere");
    field("rate_factors", rate_factors,
          "factors of the learning rate of parameters, such as [mixer.projection=0.3, transformer.token_embedding=2], "
          "by name as in train.freeze or by a part of a name between dots, which matches in every block");
    field("accumulate", accumulate, between(1, 1 << 20),
          "forward passes per step; one step sees batch_size x accumulate");
    field("learning_rate", learning_rate, positive, "peak learning rate");
    field("schedule", schedule, "course of the learning rate after warm-up");
    field("optimizer", optimizer, "rule that computes updates from gradients");
    field("shard_optimizer", shard_optimizer,
          "each of several processes stores an equal part of the optimiser's state (ZeRO stage 1)");
    field("clip", clip, at_least(0), "largest gradient norm; 0: no clipping");
    field("weight_average", weight_average, "mean of the weights of the last steps, for evaluation and use");
    field("cuda_graph", cuda_graph,
          "on a CUDA device: replay the whole step as one graph, if no part of it needs the host");
    field("cpu_slices", cpu_slices, between(1, 256),
          "on the CPU: parts of each batch that threads compute at the same time, one thread for each part; 1: all "
          "threads share each operator; default: 1 to 8, one for each 384 tokens of a batch at width 128, fewer for "
          "narrower models and more for wider ones; 1 for models wider than 384 or with n-grams, regions or a bag");
    field("loss_chunks", loss_chunks, between(1, 1 << 16),
          "parts of the tokens whose logits and losses are computed one after the other, and recomputed in the "
          "backward pass, to save memory");
    field("log_interval", log_interval, between(1, most_steps), "steps between lines of metrics.jsonl");
    field("eval_interval", eval_interval, between(1, most_steps), "steps between evaluations");
    field("evaluation", evaluation, "data of an evaluation during training");
    field("patience", patience, between(0, most_steps),
          "evaluations without a better validation loss (classification: task.selection_metric) after which training "
          "ends; 0: never");
    field("checkpoint_interval", checkpoint_interval, between(1, most_steps), "steps between checkpoints");
    field("diagnostics_interval", diagnostics_interval, between(0, most_steps),
          "steps between measurements of gradients, updates, norms, attention and score forms per block; 0: never");
    field("divergence", divergence, "numbers that are not finite, and spikes");
  }
};

}  // namespace metaformer
