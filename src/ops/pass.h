#pragma once
// A pass through a model: what its layers share.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

namespace metaformer {

// Where the residual stream is observed, in the order of a pass: the embeddings, then five values of every block (seven
// of one that sees a source), then what the head reads.
enum class StreamPoint {
  embedding,
  mixer_input,   // of the mixer, after the norm
  mixer_branch,  // what the mixer adds to the stream
  after_mixer,
  cross_branch,  // what the mixer adds by which it sees a source
  after_cross,
  feed_forward_branch,  // what the feed-forward branch adds
  after_feed_forward,
  output  // behind the final norm
};

// The vectors whose products are scores: r_bnce = left_c F right_e, before positions, before 1/sqrt(k) and before the
// softmax. Of a distance: F is the metric M, and r = -(p_c - p_e) M (p_c - p_e). A learned temperature is in F, of
// scaled dot product in left_c.
struct ScoredVectors {
  torch::Tensor left_bnci, right_bnej;  // one tensor where queries are keys
  torch::Tensor form_nij;               // M, W or U of every head; undefined: none, r = left . right
};

// Observes a forward pass: what each block adds to the residual stream, and what mixers with scores attend to. Every
// function is called in the order of the blocks. A probe changes nothing: a pass without one computes the same.
class Probe {
 public:
  virtual ~Probe() = default;

  // Whether mixers with scores must compute the whole score matrix, and call `scored` and `attended`.
  virtual bool wants_scores() const = 0;

  virtual void stream(StreamPoint point, const torch::Tensor& x_bcd) = 0;

  virtual void scored(const ScoredVectors&) {}

  // score_bnce: as the softmax takes them (scaled, with what positions add), but not masked. weight_bnce: after the
  // softmax, before dropout; rows (queries) sum to 1, or to 0 where a token sees nothing. visible_bce: the mask, as
  // visible_bce() of attention/mixer.h gives it; undefined: everyone sees everyone.
  virtual void attended(const torch::Tensor& /*score_bnce*/, const torch::Tensor& /*weight_bnce*/,
                        const torch::Tensor& /*visible_bce*/) {}
};

// One draw of a pass: a seed, as a function of the pass's key and of how many draws came before. Each row of a step has
// its own part of what is drawn.
struct RandomDraw {
  torch::Tensor key;  // one int64, on the device that draws
  std::uint64_t number = 0;
  std::int64_t first_row = 0;  // of the pass, in the step

  std::uint64_t seed() const;  // for a key in the host's memory
};

// The random numbers of a pass. It can be copied, and put back to an earlier place, to draw the same again.
class RandomStream {
 public:
  RandomStream() = default;  // has no numbers: to draw from it is an error

  // The key is read when something is drawn. Work that a device recorded therefore draws other numbers when it is
  // replayed after the key was rewritten: those that the same work draws when it is started with that key.
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

// Decisions of a pass that depend on values, such as buckets of LSH. Recomputation takes the first decision, because
// values may then differ by rounding.
struct Choices {
  std::vector<torch::Tensor> made;
  bool repeats = false;
  std::size_t next = 0;  // that is taken again
};

// The settings of a forward pass. A default one evaluates: no dropout, no draws. Draws come from no shared generator,
// so a repeated pass draws the same numbers.
struct Pass {
  bool training = false;
  RandomStream random;
  Probe* probe = nullptr;      // not owned
  Choices* choices = nullptr;  // not owned; none: nothing is computed again
  // The values of RWKV-7's first block, [b, c, d], forwards and backwards, with which later ones mix theirs.
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

  // Rewrites the key where it lies. Work that was started for the step before must not draw after this call, but for
  // what the device's stream has in order.
  void set_step(std::int64_t step);

  // A pass over rows from `first_row` on.
  Pass pass(std::int64_t first_row = 0) const;

 private:
  std::uint64_t seed_;
  torch::Tensor key_;
};

// N(0, 1) in float32, a function of the draw and of their places only, on any device: entry i is made of
// Rng::with_key(seed of the draw).uniform(2 i), uniform(2 i + 1) (Box, Muller 1958). The host never waits for the key.
torch::Tensor random_normal(const RandomDraw& draw, torch::IntArrayRef sizes);

}  // namespace metaformer
