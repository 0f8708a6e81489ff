#pragma once
// What a transformer keeps between calls.

#include <vector>

#include "attention/mixer_state.h"
#include "model/sequence_model.h"

namespace metaformer {

// The memory of a transformer in training (Transformer-XL, Dai et al. 2019, section 3.2): the vectors that entered each
// block for the tokens before a segment. No gradient flows into them; what blocks make of them is made with the weights
// of each step.
class TransformerMemory : public ModelState {
 public:
  // Of up to `capacity` tokens.
  TransformerMemory(std::int64_t layers, std::int64_t width, std::int64_t capacity, torch::Device device)
      : width_(width), capacity_(capacity), device_(device), blocks_bmd_(static_cast<std::size_t>(layers)) {}

  std::int64_t length() const override;  // tokens that it holds
  void reset() override;
  NamedTensors tensors() const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override;

  // What a block remembers, [b, m, d]; undefined: nothing.
  const torch::Tensor& of_block(std::size_t block) const { return blocks_bmd_.at(block); }
  const torch::Tensor& segments_bm() const { return segments_bm_; }  // undefined: all one segment

  // The newest tokens, which enter the block now.
  void remember(std::size_t block, const torch::Tensor& x_bcd);
  void remember_segments(const torch::Tensor& segments_bc);

 private:
  torch::Tensor newest(const torch::Tensor& before, const torch::Tensor& x) const;

  std::int64_t width_, capacity_;
  torch::Device device_;
  std::vector<torch::Tensor> blocks_bmd_;
  torch::Tensor segments_bm_;
};

// The state of a transformer: one of its mixer for every block. With model.memory a text is read in segments of
// model.context tokens, each of which sees the end of the one before it.
class TransformerState : public ModelState {
 public:
  // For `batch` sequences of up to `capacity` tokens, beside a memory of that many.
  TransformerState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, std::int64_t memory,
                   torch::Device device);

  // The same object; throws Error (exit code 1) when it is the state of another kind of model.
  static TransformerState& of(ModelState& state);

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override;

  MixerState& mixer(std::size_t block) { return mixers_.at(block); }

  // Tokens of the segment that is being read, and of those before it that are remembered.
  std::int64_t place() const { return place_; }
  std::int64_t remembered() const { return remembered_; }

  // Tokens follow. Throws Error when they do not fit a segment of `context` tokens, of which one begins, given a
  // memory, where the last is full. True when one began: what mixers hold has moved.
  bool prepare(std::int64_t tokens, std::int64_t context);
  void advance(std::int64_t tokens);

  // Sequence i becomes what sequence rows_b[i] was; there may be another number of them.
  void select(const torch::Tensor& rows_b);

  // Those of all tokens that mixers hold, with those that follow now, [b, e].
  torch::Tensor extend_segments(const torch::Tensor& segments_bc);

 private:
  std::int64_t batch_, memory_, length_ = 0, place_ = 0, remembered_ = 0;
  torch::Device device_;
  torch::Tensor segments_be_;  // undefined: none were given
  std::vector<MixerState> mixers_;
};

}  // namespace metaformer
