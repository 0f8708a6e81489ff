#pragma once
// A probe that keeps what it observes of one sequence.

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

  bool wants_scores() const override { return true; }
  void stream(StreamPoint point, const torch::Tensor& x_bcd) override;
  void scored(const ScoredVectors& vectors) override { layers_.push_back({.vectors = vectors}); }
  void attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce) override;

  // By layer; empty for mixers without scores.
  const std::vector<Scores>& layers() const { return layers_; }
  // The mean over the tokens of the Euclidean norm of their vectors.
  const DepthNorms& norms() const { return norms_; }

 private:
  std::vector<Scores> layers_;
  DepthNorms norms_;
};

}  // namespace metaformer
