#pragma once
// The state of a transformer: one of its mixer for every block.

#include <vector>

#include "attention/mixer_state.h"
#include "model/model_state.h"

namespace metaformer {

class TransformerState : public ModelState {
 public:
  // For `batch` sequences of up to `capacity` tokens.
  TransformerState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, torch::Device device);

  // The same object; throws Error (exit code 1) when it is the state of another kind of model.
  static TransformerState& of(ModelState& state);

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override;

  MixerState& mixer(std::size_t block) { return mixers_.at(block); }
  void advance(std::int64_t tokens) { length_ += tokens; }

 private:
  std::int64_t batch_, length_ = 0;
  std::vector<MixerState> mixers_;
};

}  // namespace metaformer
