#pragma once
// Measures a forward pass of transformers: norms of the residual stream and of its gradients by depth, and the
// attention of every mixer.

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "ops/pass.h"

namespace metaformer {

// Norms of the stream at every StreamPoint; vectors have an entry for each layer.
struct DepthNorms {
  double embedding = 0;
  std::vector<double> mixer_input, mixer_branch, after_mixer;
  std::vector<double> cross_branch, after_cross;  // empty if no block sees a source
  std::vector<double> feed_forward_branch, after_feed_forward;
  double output = 0;

  void add(StreamPoint point, double norm);
};

// The keys are the names above; those of a source are present only if there is one.
nlohmann::ordered_json to_json(const DepthNorms& norms);

// Measures of one mixer over all sequences of a batch; vectors have an entry for each head.
struct AttentionMeasures {
  // The mean over the queries of the entropy of their attention, divided by the logarithm of the number of visible
  // keys: 0 if one key has all the weight, 1 if all keys have the same. Queries that see fewer than two keys do not
  // count; NaN if no others are left.
  std::vector<double> entropy;
  std::vector<double> score_std;  // of the visible scores, the inputs of the softmax
  double score_max = 0;           // the largest absolute value of them
};

// Keeps the observed tensors, detached from the graph except for the stream.
class StreamProbe : public Probe {
 public:
  // The arguments of Probe's methods; undefined tensors for a mixer without scores.
  struct Scores {
    ScoredVectors vectors;
    torch::Tensor score_bnce, weight_bnce, visible_bce;

    bool has_scores() const { return score_bnce.defined(); }
  };

  struct StreamValue {
    StreamPoint point;
    torch::Tensor x_bcd;
  };

  // One transformer of the pass.
  struct Stack {
    std::vector<StreamValue> stream;
    std::vector<Scores> own, cross;  // by layer: of the mixers, and of the cross-attention mixers
  };

  explicit StreamProbe(bool wants_scores = true) : wants_scores_(wants_scores) {}

  bool wants_scores() const override { return wants_scores_; }
  void stream(StreamPoint point, const torch::Tensor& x_bcd) override;
  void scored(const ScoredVectors& vectors) override { latest_ = {.vectors = vectors}; }
  void attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce,
                const torch::Tensor& visible_bce) override;

  // In the order of the pass: an encoder before its decoder.
  const std::vector<Stack>& stacks() const { return stacks_; }

  // The scores of the only mixer of a pass without a transformer.
  const Scores& latest() const { return latest_; }

 private:
  bool wants_scores_;
  std::vector<Stack> stacks_;
  Scores latest_;  // of the branch that is being computed
};

// The mean over the tokens of the Euclidean norm of their vectors. Tokens of segment -1 are padding, which does not
// count; undefined segments: no padding.
DepthNorms token_norms(const StreamProbe::Stack& stack, const torch::Tensor& segments_bc = {});

// Frobenius norms of the gradients of the stream's values, in their order; undefined ones are zero.
DepthNorms gradient_norms(const StreamProbe::Stack& stack, const std::vector<torch::Tensor>& gradients);

// The numbers of a tensor on any device, row by row.
std::vector<double> to_vector(const torch::Tensor& values);

AttentionMeasures measure_attention(const StreamProbe::Scores& seen);

}  // namespace metaformer
