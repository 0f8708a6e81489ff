#pragma once
// What goes on inside a model while it trains, by block and by module outside the blocks.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/mixer.h"
#include "config/experiment_config.h"
#include "model/parameter_buffer.h"
#include "model/sequence_model.h"
#include "model/stream_probe.h"
#include "tasks/task.h"

namespace metaformer {

// Properties of one mixer's score form F (attention/mixer.h), averaged over its heads.
struct FormDiagnostics {
  double asymmetry = 0;          // |F - F^T| / (2 |F|), Frobenius: 0 symmetric, 1 antisymmetric
  double effective_rank = 0;     // exp of the entropy of the normalised singular values (Roy and Vetterli 2007)
  std::vector<double> spectrum;  // singular values, largest first
};
FormDiagnostics diagnose_form(const ScoreForm& form);

// After a step: per group gradient_norm (before clipping) and update_ratio (norm of the step's change over the norm of
// what it changed); for blocks whose mixer has scores also score_asymmetry, score_effective_rank and score_spectrum.
// `before`: the parameter buffer before the step. `gradient_norm`: of the whole gradient before clipping; the buffer
// holds the clipped one.
nlohmann::ordered_json diagnose_step(const SequenceModel& model, ParameterBuffer& parameters,
                                     const torch::Tensor& before, double gradient_norm);

// What one transformer of a model does with the probe batch.
struct StackDiagnostics {
  std::string prefix;                                        // of the names of its groups: "encoder_" of an encoder
  DepthNorms norms;                                          // of a token's vectors, mean over the tokens
  std::optional<DepthNorms> gradients;                       // with respect to the stream, of the mean loss
  std::vector<std::optional<AttentionMeasures>> own, cross;  // by block; nothing of mixers without scores
};

// Every head of every mixer with scores.
std::vector<double> attention_entropies(const std::vector<StackDiagnostics>& stacks);

// Adds the measures to the groups. Blocks get stream_norm, mixer_norm, feed_forward_norm, cross_norm, stream_gradient,
// attention_entropy, score_std and score_max, and the last three with the prefix cross_ for attention to a source. The
// embeddings get stream_norm and stream_gradient.
void add_to_json(const std::vector<StackDiagnostics>& stacks, nlohmann::ordered_json& groups);

// Measures a model while it trains: in float32, without dropout, random draws or memory, so that training goes on as if
// nothing had been measured. The probe batch are the first sequences of the validation split: at most 8, and fewer or
// shorter ones where the scores of all heads and layers would be more than 2^23 numbers.
class StreamDiagnostics {
 public:
  // Keeps references.
  StreamDiagnostics(const ExperimentConfig& config, const Task& task, SequenceModel& model, torch::Device device);

  enum class Gradients { none, of_stream };

  // Empty for a model without blocks.
  std::vector<StackDiagnostics> measure(Gradients gradients);

 private:
  const Batch& batch();

  const ExperimentConfig& config_;
  const Task& task_;
  SequenceModel& model_;
  torch::Device device_;
  std::optional<Batch> batch_;  // once it was needed
};

}  // namespace metaformer
