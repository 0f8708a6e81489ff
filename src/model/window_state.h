#pragma once
// The state of a model that sees a fixed number of tokens: the newest of them.

#include "model/model_state.h"

namespace metaformer {

class WindowState : public ModelState {
 public:
  // Of `batch` sequences and the `capacity` newest tokens.
  WindowState(std::int64_t batch, std::int64_t capacity, torch::Device device);

  // The same object; throws Error (exit code 1) when it is the state of another kind of model.
  static WindowState& of(ModelState& state);

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override;

  // The newest tokens and their segments, [b, m], the newest last. Where there is no token yet: id 0 of the segment
  // no_segment.
  static constexpr std::int64_t no_segment = -2;
  const torch::Tensor& ids_bm() const { return ids_bm_; }
  const torch::Tensor& segments_bm() const { return segments_bm_; }

  // These follow; they lie behind those that it holds.
  void advance(const torch::Tensor& all_ids_be, const torch::Tensor& all_segments_be);

 private:
  std::int64_t length_ = 0;
  torch::Tensor ids_bm_, segments_bm_;
};

}  // namespace metaformer
