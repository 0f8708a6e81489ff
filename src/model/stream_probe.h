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
  std::vector<double> cross_branch, after_cross;  // empty where no block sees a source
  std::vector<double> feed_forward_branch, after_feed_forward;
  double output = 0;

  void add(StreamPoint point, double norm);
};

// The keys are the names above; of a source only where there is one.
nlohmann::ordered_json to_json(const DepthNorms& norms);

// Measures of one mixer over all sequences of a batch; vectors have an entry for each head.
struct AttentionMeasures {
  // Mean over the queries of the entropy of their attention, divided by the logarithm of the number of visible keys: 0
  // one key, 1 all of them alike. Queries that see fewer than two keys do not count; NaN where no other is left.
  std::vector<double> entropy;
  std::vector<double> score_std;  // of the visible scores, as the softmax takes them
  double score_max = 0;           // the largest absolute value of them
};

// Keeps what it observes, detached from the graph but for the stream.
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
    std::vector<Scores> own, cross;  // by layer: of the mixers, and of those by which it sees a source
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
  Scores latest_;  // of the branch that is computed
};

// The mean over the tokens of the Euclidean norm of their vectors. Tokens of segment -1 are padding, which does not
// count; undefined: there is none.
DepthNorms token_norms(const StreamProbe::Stack& stack, const torch::Tensor& segments_bc = {});

// Frobenius norms of the gradients of the stream's values, in their order; undefined ones are zero.
DepthNorms gradient_norms(const StreamProbe::Stack& stack, const std::vector<torch::Tensor>& gradients);

// The numbers of a tensor on any device, row by row.
std::vector<double> to_vector(const torch::Tensor& values);

AttentionMeasures measure_attention(const StreamProbe::Scores& seen);

}  // namespace metaformer
