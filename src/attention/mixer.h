#pragma once
// The interface of every token mixer.

#include <torch/types.h>

#include <memory>
#include <optional>

#include "attention/mixer_state.h"
#include "attention/visibility.h"
#include "ops/linear.h"
#include "ops/pass.h"

namespace metaformer {

// The bilinear form that scores are made of, x_c F x_e per head, as F = left^T right; r is its rank at most.
struct ScoreForm {
  torch::Tensor left_nrd, right_nrd;
};

// Whether x is the very end of the context: memory followed by x, as one tensor and a view of it.
inline bool is_end_of(const torch::Tensor& x_bcd, const torch::Tensor& context_bed) {
  if (x_bcd.is_same(context_bed)) return true;
  const auto before = context_bed.size(1) - x_bcd.size(1);
  return before > 0 && x_bcd.is_alias_of(context_bed) && x_bcd.strides() == context_bed.strides() &&
         x_bcd.storage_offset() == context_bed.storage_offset() + before * context_bed.stride(1);
}

class MixerDecoder;

class Mixer : public Layer {
 public:
  // Mixes the tokens of context_bed into those of x_bcd, giving [b, c, d]. The context is x itself (the same tensor),
  // memory followed by x (is_end_of), or another sequence, where the mixer can do that. With a state, x are the newest
  // tokens, context must be x, and earlier tokens come from the state, which is extended. A token that sees nothing
  // gets zeros.
  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) {
    const auto t_bcd = mix(x_bcd, context_bed, visibility, state, pass);
    return output() == nullptr ? t_bcd : (*output())(t_bcd);
  }

  // The two parts of it: what comes before the output projection, and that projection, or nullptr where there is none.
  virtual torch::Tensor mix(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                            MixerState* state, Pass& pass) = 0;
  virtual Linear* output() { return nullptr; }

  // The same for one token at a time of `batch` sequences of up to `capacity` tokens, faster: for weights, as they are
  // now, in float32 on the CPU. Nothing where there is no such thing: then `forward` with a state does it.
  virtual std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity) const;

  // Nothing for mixers without scores, or whose scores are of no single form. Of a distance: the part that depends on
  // both tokens.
  virtual std::optional<ScoreForm> score_form() const { return std::nullopt; }

  // Scales the freshly drawn parameters so that the scores of different tokens start with the standard deviation
  // `score_std` of the options; of a distance, what varies along the context. Expects the mixer's own parameters
  // (forms) drawn from N(0, 1), and normalised inputs whose projections have the variance `projection_variance`.
  virtual void scale_initial_scores(double projection_variance) { (void)projection_variance; }
};
}  // namespace metaformer
