#pragma once
// What a trained network does with the text of a split: gradients by depth, the loss by position in the window, and how
// much context it uses.

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "model/stream_probe.h"
#include "run/load_run.h"
#include "tasks/task.h"

namespace metaformer {

// Of the mean loss of one batch of training size (with model.memory of evaluation, before which nothing is remembered),
// without dropout and without an update.
struct GradientNorms {
  DepthNorms stream;                        // Frobenius norm of the gradient with respect to the stream
  std::vector<double> mixer, feed_forward;  // by layer, with respect to the branch's parameters, its norms included
};

// Mean cross-entropy of the targets that stand at one position of the window, from 0.
struct PositionLoss {
  std::int64_t position = 0, targets = 0;
  double loss = 0;
};

// Mean cross-entropy of the same targets where the model reads only the last `tokens` tokens before each.
struct ContextLoss {
  std::int64_t tokens = 0;
  double loss = 0;
};

struct SplitInspection {
  GradientNorms gradients;
  std::vector<PositionLoss> loss_by_position;  // not of classifiers; positions without targets are left out
  // Language models without memory only. The targets are the last ones of `context_targets` windows spread over the
  // split; positions start again at the first token that the model reads.
  std::vector<ContextLoss> loss_by_context;
  std::int64_t context_targets = 0;
  // The smallest context in loss_by_context from which on the loss is at most 1% above that with the whole context.
  std::optional<std::int64_t> effective_context;
};

struct SplitLimits {
  std::int64_t batches = 0;             // of evaluation, for loss_by_position; 0: the whole split
  std::int64_t context_targets = 1024;  // at most, rounded up to whole batches
};

// On the validation split, in the precision of the run (gradients in float32). Throws Interrupted when a signal asks to
// stop. Errors: exit code 2 for a model that is no transformer.
SplitInspection inspect_split(const LoadedRun& run, const Task& task, const SplitLimits& limits = {});

// {"gradients": {"stream": (as DepthNorms), "mixer": [..], "feed_forward": [..]},
//  "loss_by_position": [{"position", "targets", "loss"}], "loss_by_context": [{"tokens", "loss"}], "context_targets",
//  "effective_context"}; what there is not is absent.
nlohmann::ordered_json to_json(const SplitInspection& inspection);

// Of losses with more and more context, the last with the whole: see SplitInspection::effective_context.
std::int64_t effective_context_of(const std::vector<ContextLoss>& losses);

}  // namespace metaformer
