#pragma once
// The memory of a transformer in training (Transformer-XL, Dai et al. 2019, section 3.2): the vectors that entered each
// block for the tokens before a segment. No gradient flows into them; what blocks make of them is made with the weights
// of each step.

#include <vector>

#include "model/model_state.h"

namespace metaformer {

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

}  // namespace metaformer
