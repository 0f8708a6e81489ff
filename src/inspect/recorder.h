#pragma once
// A probe that keeps what it observes of one sequence.

#include <optional>
#include <vector>

#include "inspect/depth_norms.h"
#include "ops/probe.h"

namespace metaformer {

class Recorder : public Probe {
 public:
  struct Scores {
    ScoredVectors vectors;
    torch::Tensor score_nce, attention_nce;  // float64 on the CPU
  };

  // Of one transformer of the pass: of the mixers by layer, and of those by which it sees a source. Empty for mixers
  // without scores.
  struct Stack {
    std::vector<Scores> own, cross;
    DepthNorms norms;  // the mean over the tokens of the Euclidean norm of their vectors
  };

  bool wants_scores() const override { return true; }
  void stream(StreamPoint point, const torch::Tensor& x_bcd) override;
  void scored(const ScoredVectors& vectors) override { latest_ = {.vectors = vectors}; }
  void attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce) override;

  // In the order of the pass: an encoder before its decoder.
  const std::vector<Stack>& stacks() const { return stacks_; }

  // Of the only mixer of a pass that is no transformer's; nothing if it has no scores.
  const std::optional<Scores>& latest() const { return latest_; }

 private:
  void take_latest(std::vector<Scores>& to);

  std::vector<Stack> stacks_;
  std::optional<Scores> latest_;  // of the branch that is computed
};

}  // namespace metaformer
