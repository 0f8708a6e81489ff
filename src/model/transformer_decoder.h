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
  BlockDecoder(const Block& block, std::int64_t batch, std::int64_t capacity);
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

class TransformerDecoder : public Decoder {
 public:
  // Of a causal model with the given head, as their weights are now: float32, contiguous, on the CPU.
  TransformerDecoder(const TransformerImpl& transformer, const torch::Tensor& head_vd, std::int64_t context,
                     std::int64_t batch);

  void resume(ModelState& state) override;
  std::span<const float> step(std::span<const std::int32_t> tokens_b) override;

 private:
  std::int64_t batch_, context_, width_;
  torch::Tensor token_table_vd_, position_table_cd_;
  std::vector<BlockDecoder> blocks_;
  std::optional<NormDecoder> final_norm_;
  LinearDecoder head_;
  std::vector<float> x_bd_, normal_bd_, logits_bv_;
  ModelState* state_ = nullptr;
};

}  // namespace metaformer
