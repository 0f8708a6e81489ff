#pragma once
// Decoders of mixers on the CPU: through buffers that are allocated once. The library's operators allocate and dispatch
// for every result, which for so few numbers takes longer than the arithmetic.

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

// A linear layer whose tensors are float32, contiguous and on the CPU; kept alive.
class LinearDecoder {
 public:
  LinearDecoder() = default;
  LinearDecoder(torch::Tensor weight_oi, torch::Tensor bias_o);
  explicit LinearDecoder(const Linear& layer) : LinearDecoder(layer->weight(), layer->bias()) {}

  std::int64_t inputs() const { return rows_.inputs; }
  std::int64_t outputs() const { return rows_.outputs; }

  // y_bo = x_bi W^T + b, on the library's threads where it is worth them.
  void apply(const float* x_bi, float* y_bo, std::int64_t batch) const;

 private:
  torch::Tensor weight_oi_, bias_o_;
  LinearRows rows_;
};

// A mixer that mixes by scores, as its forward defines them.
struct ScoreDecoderParts {
  MixerShape shape;
  LinearDecoder projection, output;
  // Where queries, keys and values begin among the outputs of the projection.
  std::int64_t query_begin = 0, key_begin = 0, value_begin = 0;
  std::int64_t key_heads = 0;  // of keys and values, each of which serves several in a row; 0: as many as of queries
  // Slots of the state, one for both where keys are values.
  std::size_t key_slot = 0, value_slot = 0;
  // Gains of the norms of queries and keys (HeadNorm), contiguous; undefined: no norm.
  torch::Tensor query_gain_nk, key_gain_nk;
  bool from_inputs = false;  // queries and keys are x itself
  torch::Tensor form_nkj;    // q = query F of every head; undefined: q = query
  bool distance = false;     // r = q . k - k F k / 2: a distance when F is twice the metric
  float newest_share = 1;    // of the score of a token with itself
  torch::Tensor sink_n;      // as ScoreMixing has it
};
// Nothing for positions that act on scores, but for rotary and alibi.
std::unique_ptr<MixerDecoder> make_score_decoder(ScoreDecoderParts parts, std::int64_t batch, std::int64_t capacity);

}  // namespace metaformer
