#pragma once
// A pass through a model: the settings, random numbers and observers that its layers share.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

namespace metaformer {

// The points at which the residual stream is observed, in the order of a pass: the embeddings, then five values of
// every block (seven of a block that sees a source), then the input of the head.
enum class StreamPoint {
  embedding,
  mixer_input,   // the mixer's input, after the norm
  mixer_branch,  // what the mixer adds to the stream
  after_mixer,
  cross_branch,  // what the cross-attention mixer adds
  after_cross,
  feed_forward_branch,  // what the feed-forward branch adds
  after_feed_forward,
  output  // after the final norm
};

// The vectors whose products are scores: r_bnce = left_c F right_e, before positions, before 1/sqrt(k) and before the
// softmax. For a distance F is the metric M, and r = -(p_c - p_e) M (p_c - p_e). A learned temperature is a part of F,
// for scaled dot product attention of left_c.
struct ScoredVectors {
  torch::Tensor left_bnci, right_bnej;  // the same tensor if queries are keys
  torch::Tensor form_nij;               // M, W or U of every head; undefined: r = left . right
};

// Observes a forward pass: the terms that each block adds to the residual stream, and the scores and weights of mixers
// with scores. All functions are called in the order of the blocks. A probe changes nothing: a pass without one
// computes the same.
class Probe {
 public:
  virtual ~Probe() = default;

  // Whether mixers with scores must compute the whole score matrix, and call `scored` and `attended`.
  virtual bool wants_scores() const = 0;

  virtual void stream(StreamPoint point, const torch::Tensor& x_bcd) = 0;

  virtual void scored(const ScoredVectors&) {}

  // score_bnce: the inputs of the softmax (scaled, with the terms of positions), but not masked. weight_bnce: after the
  // softmax, before dropout; rows (queries) sum to 1, or to 0 if a token sees nothing. visible_bce: the mask, as
  // visible_bce() of attention/mixer.h gives it; undefined: every token sees every token.
  virtual void attended(const torch::Tensor& /*score_bnce*/, const torch::Tensor& /*weight_bnce*/,
                        const torch::Tensor& /*visible_bce*/) {}
};

// One draw of a pass: a seed, which is a function of the pass's key and of the number of earlier draws. Each row of a
// step has its own part of the drawn numbers.
struct RandomDraw {
  torch::Tensor key;  // one int64, on the device that draws
  std::uint64_t number = 0;
  std::int64_t first_row = 0;  // index in the step of the pass's first row

  std::uint64_t seed() const;  // only for a key in the host's memory
};

// The random numbers of a pass. A copy, or a stream that is set back to an earlier place, draws the same again.
class RandomStream {
 public:
  RandomStream() = default;  // has no numbers: to draw from it is an error

  // The key is read at each draw. Recorded work that a device replays after the key was rewritten therefore draws the
  // numbers that the same work draws when it is started with the new key.
  explicit RandomStream(torch::Tensor key, std::int64_t first_row = 0) : key_(std::move(key)), first_row_(first_row) {}

  RandomDraw next();

  std::int64_t first_row() const { return first_row_; }
  std::uint64_t place() const { return drawn_; }
  void go_back(std::uint64_t place) { drawn_ = place; }

 private:
  torch::Tensor key_;
  std::int64_t first_row_ = 0;
  std::uint64_t drawn_ = 0;
};

// Decisions of a pass that depend on values, such as buckets of LSH. Recomputation repeats the decisions of the first
// computation, because values may then differ by rounding.
struct Choices {
  std::vector<torch::Tensor> made;
  bool repeats = false;
  std::size_t next = 0;  // index of the next decision to repeat
};

// The settings of a forward pass. The default is evaluation: no dropout, no draws. Passes do not share a random
// generator, so a repeated pass draws the same numbers.
struct Pass {
  bool training = false;
  RandomStream random;
  Probe* probe = nullptr;      // not owned
  Choices* choices = nullptr;  // not owned; nullptr: nothing is recomputed
  // The values of RWKV-7's first block, [b, c, d], of the forward and of the backward direction. Later blocks mix their
  // values with these.
  std::array<torch::Tensor, 2> first_values = {};

  void observe(StreamPoint point, const torch::Tensor& x_bcd) const {
    if (probe != nullptr) probe->stream(point, x_bcd);
  }
  // The result of `choose`, or its earlier result in a recomputed pass.
  template <class Choose>
  torch::Tensor chosen(const Choose& choose) const {
    if (choices == nullptr) return choose();
    return choices->repeats ? choices->made.at(choices->next++) : choices->made.emplace_back(choose());
  }
  bool wants_scores() const { return probe != nullptr && probe->wants_scores(); }
};

// The training passes of a step. Their random numbers are a function of (seed, step, number of the draw, row of the
// step): it makes no difference in which passes, slices or processes rows are computed.
class StepPasses {
 public:
  StepPasses(std::uint64_t seed, torch::Device device);

  // Overwrites the key in place. Work of the previous step must not draw after this call, except in the order of the
  // device's stream.
  void set_step(std::int64_t step);

  // A pass over rows from `first_row` on.
  Pass pass(std::int64_t first_row = 0) const;

 private:
  std::uint64_t seed_;
  torch::Tensor key_;
};

// Numbers from N(0, 1) in float32, which depend only on the draw and their index, on any device. Entry i is computed
// from Rng::with_key(seed of the draw).uniform(2 i), uniform(2 i + 1) (Box, Muller 1958). The host never waits for the
// key.
torch::Tensor random_normal(const RandomDraw& draw, torch::IntArrayRef sizes);

}  // namespace metaformer
