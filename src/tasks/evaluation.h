#pragma once
// Evaluates a predictor on a split.

#include <memory>
#include <optional>
#include <vector>

#include "config/train_config.h"
#include "distributed/process_group.h"
#include "model/sequence_model.h"
#include "tasks/task.h"

namespace metaformer {

// A network as a predictor.
class NetworkPredictor : public Predictor {
 public:
  // Keeps a reference to the model.
  explicit NetworkPredictor(SequenceModel& model) : model_(model) {}

  // On the CPU threads share slices of rows, so that what they compute stays in their caches. The slices, and so the
  // logits, do not depend on the number of threads. A model that remembers goes on where the batch before ended,
  // unless this one begins.
  torch::Tensor logits(const Batch& batch) const override;
  bool remembers() const override { return model_.remembers(); }

 private:
  torch::Tensor logits_of_slice(const Batch& slice, std::size_t number) const;

  SequenceModel& model_;
  // A state for every slice of the rows; none for a model without memory.
  mutable std::vector<std::unique_ptr<ModelState>> states_;
};

// The evaluation batches of a split that an evaluation sees, in rising order; of a single one perhaps the first rows.
struct EvaluationPart {
  std::vector<std::int64_t> batches;
  std::int64_t rows = 0;                      // 0: all
  std::int64_t tokens = 0, split_tokens = 0;  // of these batches, and of all
  bool is_whole() const { return tokens == split_tokens; }
};

// As many batches, or rows of one, as have at most `most_tokens` tokens (at least one row), evenly spread over the
// split; `in_order`: its first ones, where a batch goes on from the one before it. Without a limit all of them.
EvaluationPart part_of_split(const BatchStream& batches, Split split, std::optional<std::int64_t> most_tokens,
                             bool in_order);

// A predictor, a task and how the one is evaluated on the other. Keeps references.
struct Scoring {
  const Predictor& predictor;
  const Task& task;
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  ProcessGroup& group = one_process();
};

// The sums that the measures of a split follow from: of the whole split, each target once; of a part of it; of
// `batches` random batches, always the same ones. Deterministic. Throw Interrupted when a stop signal arrives.
// Processes of a group take turns in the batches, and all get what one process gets, to the last bit. A predictor that
// remembers computes all batches in each of them.
ScoreSums score_split(const Scoring& scoring, Split split);
ScoreSums score_part(const Scoring& scoring, Split split, const EvaluationPart& part);
ScoreSums score_random_batches(const Scoring& scoring, Split split, std::int64_t batches);

// The measures that follow from such sums.
Evaluation report_of(const Task& task, Split split, const ScoreSums& sums, Tables tables = Tables::few);
Evaluation evaluate_split(const Scoring& scoring, Split split);

// "loss 0.0012, exact match 99.5%": what a task's measures come down to.
std::string headline_of(const Task& task, const Evaluation& evaluation);

}  // namespace metaformer
