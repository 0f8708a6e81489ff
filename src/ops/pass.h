#pragma once
// What a forward pass is given besides its input: whether it trains, and where its random numbers come from. Nothing is
// drawn from a generator that others share, so a pass that is repeated draws the same numbers.

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "ops/probe.h"

namespace metaformer {

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

// What a pass has chosen by its numbers, such as buckets. A part of it that is computed again, from numbers that may
// differ by rounding, takes what was chosen first.
struct Choices {
  std::vector<torch::Tensor> made;
  bool repeats = false;
  std::size_t next = 0;  // that is taken again
};

// A default one evaluates: no dropout, no draws.
struct Pass {
  bool training = false;
  RandomStream random;
  Probe* probe = nullptr;      // not owned
  Choices* choices = nullptr;  // not owned; none: nothing is computed again

  void observe(StreamPoint point, const torch::Tensor& x_bcd) const {
    if (probe != nullptr) probe->stream(point, x_bcd);
  }
  // What `choose` returns, or has returned before.
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

  // Of rows from `first_row` on.
  Pass pass(std::int64_t first_row = 0) const;

 private:
  std::uint64_t seed_;
  torch::Tensor key_;
};

}  // namespace metaformer
