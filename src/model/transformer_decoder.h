#pragma once
// The decoder of a causal transformer on the CPU, in float32, through buffers that are allocated once.

#include <span>
#include <vector>

#include "attention/mixer_decoder.h"
#include "model/decoder.h"
#include "model/transformer.h"

namespace metaformer {

// Layer normalisation of rows; its tensors are float32, contiguous and on the CPU.
class NormDecoder {
 public:
  explicit NormDecoder(const LayerNorm& norm) : weight_d_(norm->weight()), bias_d_(norm->bias()) {}
  void apply(const float* x_bd, float* y_bd, std::int64_t batch) const;

 private:
  torch::Tensor weight_d_, bias_d_;
};

class BlockDecoder {
 public:
  // `mixer`: of the block.
  BlockDecoder(const Block& block, std::unique_ptr<MixerDecoder> mixer, std::int64_t batch);
  void resume(MixerState& state) { mixer_->resume(state); }

  // Replaces the vectors of the newest tokens by what the block makes of them.
  void step(std::vector<float>& x_bd);

 private:
  // As in BlockImpl.
  template <class Branch>
  void residual(std::vector<float>& x_bd, const NormDecoder& norm, Branch branch);
  void feed_forward(const float* x_bd, float* y_bd);

  std::int64_t batch_;
  NormPosition norm_position_;
  Activation activation_;
  NormDecoder mixer_norm_, feed_forward_norm_;
  std::unique_ptr<MixerDecoder> mixer_;
  LinearDecoder up_, down_;
  std::vector<float> normal_bd_, branch_bd_;
  std::vector<float> hidden_, slope_;  // [b, hidden width]
};

// Of a causal model with the given head, as their weights are now: float32, contiguous, on the CPU. Nothing when one of
// its mixers has no decoder.
std::unique_ptr<Decoder> make_transformer_decoder(const TransformerImpl& transformer, const torch::Tensor& head_vd,
                                                  std::int64_t context, std::int64_t batch);

}  // namespace metaformer
