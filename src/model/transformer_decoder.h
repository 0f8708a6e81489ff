#pragma once
// The decoder of a causal transformer on the CPU, in float32, through buffers that are allocated once.

#include <span>
#include <vector>

#include "attention/mixer_decoder.h"
#include "model/sequence_model.h"
#include "model/transformer.h"

namespace metaformer {

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
  void apply(std::vector<float>& x_bd, const BranchNorms& norms, Branch branch);
  void feed_forward(const float* x_bd, float* y_bd);

  std::int64_t batch_;
  NormPosition norm_position_;
  bool has_residual_;
  BranchNorms mixer_norms_, feed_forward_norms_;
  std::unique_ptr<MixerDecoder> mixer_;
  FeedForwardConfig feed_forward_;
  LinearDecoder up_, down_;
  std::vector<float> normal_bd_, branch_bd_;
  std::vector<float> up_bu_, slope_bu_;  // outputs u of the up layer, and slopes that nothing reads
  std::vector<float> hidden_bh_;
};

// Of a causal model with the given head, as their weights are now: float32, contiguous, on the CPU. Nothing when one of
// its mixers has no decoder.
std::unique_ptr<Decoder> make_transformer_decoder(const TransformerImpl& transformer, const torch::Tensor& head_vd,
                                                  std::int64_t batch);

}  // namespace metaformer
