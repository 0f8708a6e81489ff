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

  // On the CPU threads share slices of rows, so that intermediate results stay in their caches. The slices, and so the
  // logits, do not depend on the number of threads. A model that remembers continues from the previous batch, unless
  // this one begins.
  torch::Tensor logits(const Batch& batch) const override;
  bool remembers() const override { return model_.remembers(); }

 private:
  torch::Tensor logits_of_slice(const Batch& slice, std::size_t number) const;

  SequenceModel& model_;
  // A state for every slice of the rows; none for a model without memory.
  mutable std::vector<std::unique_ptr<ModelState>> states_;
};

// The batches of a split that an evaluation uses, in rising order; of a single batch possibly only the first rows.
struct EvaluationPart {
  std::vector<std::int64_t> batches;
  std::int64_t rows = 0;                      // 0: all
  std::int64_t tokens = 0, split_tokens = 0;  // of these batches, and of all
  bool is_whole() const { return tokens == split_tokens; }
};

// The batches of a part of a split with at most `most_tokens` tokens, evenly spread over the split, or the first rows
// of one batch (at least one). `in_order`: the first batches of the split, for models in which a batch continues the
// previous one. Without a limit all batches.
EvaluationPart part_of_split(const BatchStream& batches, Split split, std::optional<std::int64_t> most_tokens,
                             bool in_order);

// A predictor, the task on which it is evaluated, and the settings of the evaluation. Keeps references.
struct Scoring {
  const Predictor& predictor;
  const Task& task;
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  ProcessGroup& group = one_process();
};

// The sums from which the measures of a split are computed: over the whole split, each target once; over a part of it;
// over `batches` random batches, always the same ones. Deterministic. Throw Interrupted at a stop signal. Processes of
// a group take turns in the batches, and all get the result of a single process, to the last bit. With a predictor that
// remembers, each of them computes all batches.
ScoreSums score_split(const Scoring& scoring, Split split);
ScoreSums score_part(const Scoring& scoring, Split split, const EvaluationPart& part);
ScoreSums score_random_batches(const Scoring& scoring, Split split, std::int64_t batches);

// The measures that are computed from such sums.
Evaluation report_of(const Task& task, Split split, const ScoreSums& sums, Tables tables = Tables::few);
Evaluation evaluate_split(const Scoring& scoring, Split split);

// The main measures of a task: "loss 0.0012, exact match 99.5%".
std::string headline_of(const Task& task, const Evaluation& evaluation);

}  // namespace metaformer
