#pragma once
// Observes a forward pass: what each block adds to the residual stream, and what mixers with scores attend to. A pass
// without a probe computes the same with and without this file.

#include <torch/types.h>

namespace metaformer {

// Where the residual stream is observed, in the order of a pass: the embeddings, then four values of every block (six
// of one that sees a source), then what the head reads.
enum class StreamPoint {
  embedding,
  mixer_branch,  // what the mixer adds to the stream
  after_mixer,
  cross_branch,  // what the mixer adds by which it sees a source
  after_cross,
  feed_forward_branch,  // what the feed-forward branch adds
  after_feed_forward,
  output  // behind the final norm
};

// What scores compare: r_bnce = left_c F right_e, before positions, before 1/sqrt(k) and before the softmax. Of a
// distance: F is the metric M, and r = -(p_c - p_e) M (p_c - p_e). A learned temperature is in F, of scaled dot product
// in left_c.
struct ScoredVectors {
  torch::Tensor left_bnci, right_bnej;  // one tensor where queries are keys
  torch::Tensor form_nij;               // M, W or U of every head; undefined: none, r = left . right
};

// Every function is called in the order of the blocks. Tensors are those of the pass: a probe does not change them.
class Probe {
 public:
  virtual ~Probe() = default;

  // Whether mixers with scores must compute the whole score matrix, and call `scored` and `attended`.
  virtual bool wants_scores() const = 0;

  virtual void stream(StreamPoint point, const torch::Tensor& x_bcd) = 0;

  virtual void scored(const ScoredVectors& vectors) { (void)vectors; }

  // score_bnce: as the softmax takes them (scaled, with what positions add), but not masked. weight_bnce: after the
  // softmax, before dropout; rows (queries) sum to 1, or to 0 where a token sees nothing. visible_bce: the mask, as
  // visible_bce() of attention/visibility.h gives it; undefined: everyone sees everyone.
  virtual void attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce,
                        const torch::Tensor& visible_bce) {
    (void)score_bnce, (void)weight_bnce, (void)visible_bce;
  }
};

}  // namespace metaformer
