#pragma once
// Decoders of mixers on the CPU, with buffers that are allocated once. LibTorch's operators allocate and dispatch for
// every result, which for so few numbers takes longer than the arithmetic.

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/mixer.h"
#include "config/mixer_config.h"
#include "cpu/decoding.h"

namespace metaformer {

// A buffer of zeros.
inline std::vector<float> floats(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); }

// A linear layer, whose tensors are float32, contiguous and on the CPU. Keeps them alive, or a copy of the matrix in
// another precision.
class LinearDecoder {
 public:
  LinearDecoder() = default;
  LinearDecoder(const torch::Tensor& weight_oi, torch::Tensor bias_o, WeightPrecision precision);
  LinearDecoder(const Linear& layer, WeightPrecision precision)
      : LinearDecoder(layer->weight(), layer->bias(), precision) {}

  std::int64_t inputs() const { return rows_.inputs; }
  std::int64_t outputs() const { return rows_.outputs; }

  // y_bo = x_bi W^T + b, on LibTorch's threads if there is enough work for them.
  void apply(const float* x_bi, float* y_bo, std::int64_t batch) const;

 private:
  torch::Tensor weight_oi_, bias_o_;
  LinearRows rows_;
};

// The parts of a mixer with scores that its decoder needs.
struct ScoreDecoderParts {
  MixerShape shape;
  LinearDecoder projection, output;
  // Where queries, keys and values begin among the outputs of the projection.
  std::int64_t query_begin = 0, key_begin = 0, value_begin = 0;
  std::int64_t key_heads = 0;  // each serves several consecutive query heads; 0: as many as query heads
  // Slots of the state; the same if keys are values.
  std::size_t key_slot = 0, value_slot = 0;
  // Gains of the norms of queries and keys (HeadNorm), contiguous; undefined: no norm.
  torch::Tensor query_gain_nk, key_gain_nk;
  bool from_inputs = false;  // queries and keys are x itself
  torch::Tensor form_nkj;    // q = query F of every head; undefined: q = query
  bool distance = false;     // r = q . k - k F k / 2: a distance when F is twice the metric
  float newest_share = 1;    // factor of the score of a token with itself
  torch::Tensor sink_n;      // see ScoreMixing
};
// nullptr for positions that act on scores, except rotary and alibi.
std::unique_ptr<MixerDecoder> make_score_decoder(ScoreDecoderParts parts, std::int64_t batch, std::int64_t capacity);

}  // namespace metaformer
