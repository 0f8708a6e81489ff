#pragma once
// Norms, gradients, score forms and attention of a model while it trains, by block and by module outside the blocks.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/mixer.h"
#include "config/experiment_config.h"
#include "model/parameters.h"
#include "model/sequence_model.h"
#include "model/stream_probe.h"
#include "run/checkpoint_meta.h"
#include "tasks/task.h"

namespace metaformer {

// Properties of one mixer's score form F (attention/mixer.h), averaged over its heads.
struct FormDiagnostics {
  double asymmetry = 0;          // |F - F^T| / (2 |F|), Frobenius: 0 symmetric, 1 antisymmetric
  double effective_rank = 0;     // exp of the entropy of the normalised singular values (Roy and Vetterli 2007)
  std::vector<double> spectrum;  // singular values, largest first
};
FormDiagnostics diagnose_form(const ScoreForm& form);

// Measures of a step, for each group of parameters: gradient_norm (before clipping) and update_ratio (norm of the
// step's change divided by the norm of the parameters before it); for blocks whose mixer has a score form also
// score_asymmetry, score_effective_rank and score_spectrum. `before`: the parameter buffer before the step.
// `gradient_norm`: the norm of the whole gradient before clipping; the buffer holds the clipped gradient.
nlohmann::ordered_json diagnose_step(const SequenceModel& model, ParameterBuffer& parameters,
                                     const torch::Tensor& before, double gradient_norm);

// Measurements of one transformer of a model on the probe batch.
struct StackDiagnostics {
  std::string prefix;                                        // of the names of its groups: "encoder_" for an encoder
  DepthNorms norms;                                          // of a token's vectors, mean over the tokens
  std::optional<DepthNorms> gradients;                       // of the mean loss with respect to the stream
  std::vector<std::optional<AttentionMeasures>> own, cross;  // by block; nothing for mixers without scores
};

// The entropies of every head of every mixer with scores.
std::vector<double> attention_entropies(const std::vector<StackDiagnostics>& stacks);

// Adds the measures to the groups. Embeddings get stream_norm and stream_gradient. Blocks get these, mixer_norm,
// feed_forward_norm, cross_norm, attention_entropy, score_std and score_max; the last three also with the prefix
// cross_.
void add_to_json(const std::vector<StackDiagnostics>& stacks, nlohmann::ordered_json& groups);

// Measures a model while it trains: in float32, without dropout, random draws or memory, so that training is unchanged.
// The probe batch consists of the first sequences of the validation split: at most 8, and fewer or shorter ones if the
// scores of all heads and layers would exceed 2^23 numbers.
class StreamDiagnostics {
 public:
  // Keeps references.
  StreamDiagnostics(const ExperimentConfig& config, const Task& task, SequenceModel& model, torch::Device device);

  enum class Gradients { none, of_stream };

  // Empty for a model without blocks.
  std::vector<StackDiagnostics> measure(Gradients gradients);

 private:
  const ExperimentConfig& config_;
  const Task& task_;
  SequenceModel& model_;
  torch::Device device_;
  std::optional<Batch> batch_;  // made when first needed
};

// Thresholds of collapsed attention, for entropies as fractions of their maximum. Collapse to one token: the mean of
// all heads is below the first number, and every head is below the second. Uniform attention: every head is at least at
// the third. In experiments/metric_failure.sh trainings that fail have a mean of 0.15 and no head above 0.45 after a
// fifth of their steps; some that succeed have a mean of 0.14, but with heads of 0.9. One that succeeds (quadratic
// attention as published, Muon) is below both for a while, which causes a warning.
constexpr double least_mean_entropy = 0.15, least_greatest_entropy = 0.55, least_entropy_of_uniform = 0.995;

// Attention with small initial scores is nearly uniform at first. So it counts as collapsed only when two looks in a
// row, after the warm-up of the learning rate, find it uniform, and the mean entropy falls by less than this between
// them.
constexpr double learned_between_looks = 2e-4;

// Number of looks in a training, at evenly spaced steps, besides those at train.diagnostics_interval.
constexpr std::int64_t looks_in_training = 40;

// The kind of collapse, from the entropies of all heads; none if there are no heads, or if an entropy is NaN.
CollapseKind collapsed(const std::vector<double>& entropies);

// Suggestions for the warning: options of the mixers that limit their scores and are not set; against uniform
// attention, larger scores at the start. The last one is another learning rate.
std::vector<std::string> collapse_remedies(CollapseKind kind, const ExperimentConfig& config);

// Whether a look is due after `step` of `steps` steps.
bool is_look_due(std::int64_t step, std::int64_t steps);

// Warns, once in a training, when attention has collapsed: in all heads of all mixers with scores, each query attends
// to one token, or equally to all tokens that it sees. Such a mixer no longer chooses by content.
class AttentionWatch {
 public:
  // Keeps references.
  AttentionWatch(const ExperimentConfig& config, StreamDiagnostics& diagnostics)
      : config_(config), diagnostics_(diagnostics) {}

  // Measures the attention, unless there are no scores or a collapse was found before. If memory runs out, it stops
  // measuring.
  void look(Progress& progress);

  // The same with entropies measured after progress.step. At a step without a look, only collapse to one token is
  // detected.
  void note(const std::vector<double>& entropies, Progress& progress) const;

 private:
  const ExperimentConfig& config_;
  StreamDiagnostics& diagnostics_;
  bool has_scores_ = true;  // until a look finds none
};

}  // namespace metaformer
