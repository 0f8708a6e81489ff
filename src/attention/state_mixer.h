#pragma once
// The common parts of mixers with a matrix state (ops/state_mixing.h): short convolutions, reading in both directions,
// and the state that one part of a text leaves for the next.

#include <torch/types.h>

#include <cmath>

#include "attention/mixer.h"
#include "attention/score_attention.h"
#include "ops/causal_convolution.h"
#include "ops/state_mixing.h"

namespace metaformer {

// Access of tokens to earlier tokens of their segment, in one pass over a part of a text. With a state the pass
// continues the previous part, and updates the state for the next part; every pass must then make the same calls in the
// same order.
class CarriedState {
 public:
  // `first_slot`: the first of the state's kept tensors that this part of a model uses.
  CarriedState(torch::Tensor segment_bc, MixerState* state, std::size_t first_slot = 0)
      : segment_bc_(std::move(segment_bc)), state_(state), slot_(first_slot) {}

  // The previous token of each token; zeros if there is none.
  torch::Tensor previous(const torch::Tensor& x_bcd);

  // The convolution of ops/causal_convolution.h; without a filter only its activation.
  torch::Tensor convolve(const torch::Tensor& x_bcd, const CausalConvolution& convolution);

  // Places of the tokens, counted from the beginning of the text: [c], in double.
  torch::Tensor places(const torch::Tensor& x_bcd);

  // The recurrence of ops/state_mixing.h.
  torch::Tensor mix(StateSteps steps);

 private:
  // x with the `count` tokens before it that the state holds, and the segments of all of them (undefined: one).
  struct Window {
    torch::Tensor x_bed, segment_be;
  };
  Window with_tokens_before(const torch::Tensor& x_bcd, std::int64_t count);

  torch::Tensor segment_bc_;
  MixerState* state_;  // nullptr: nothing is carried
  std::size_t slot_;   // the next slot of the state
};

// A filter of `size` tokens for every feature, from U(-1 / sqrt(size), 1 / sqrt(size)); undefined if size is 0.
torch::Tensor add_filter(Layer& owner, const std::string& name, std::int64_t features, std::int64_t size);

// The input of a block's mixer with model.convolution: x plus a short convolution of x (Canon layers, Allen-Zhu 2025),
// and if tokens may see later ones, plus a second convolution over those.
class ResidualConvolutionImpl : public Layer {
 public:
  ResidualConvolutionImpl(std::int64_t width, std::int64_t size)
      : filter_dj_(add_filter(*this, "filter", width, size)) {}

  torch::Tensor forward(const torch::Tensor& x_bed, const Visibility& visibility, MixerState* state);

 private:
  torch::Tensor filter_dj_;
};
TORCH_MODULE(ResidualConvolution);

class StateMixer : public Mixer {
 public:
  // `values`: the numbers that read() gives for each token, from which the output is projected. `state`: the size of
  // the state matrices. With the delta rule a token also reads and removes the content under its key.
  StateMixer(const StateMixerOptions& options, const MixerShape& shape, std::int64_t values, std::int64_t state,
             bool delta_rule = false);

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) final;
  MixerCost cost(const MixerLoad& load) const override;

 protected:
  // Returns [b, c, values]. `number` 1 of a pass is the direction from the last token to the first.
  virtual torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t number, Pass& pass) = 0;

  const MixerShape& shape() const { return shape_; }

 private:
  StateDirection direction_;
  MixerShape shape_;
  double products_;  // with numbers of the state, per token
  Linear output_;
};

// A projection with a short convolution of `size` tokens (0: none); `matrices`: the number of matrices side by side.
class ConvolvedImpl : public Layer {
 public:
  ConvolvedImpl(const MixerShape& shape, std::int64_t features, std::int64_t size, std::int64_t matrices = 1)
      : projection_(register_module("projection", Linear(shape.width, features, shape.bias, Init::normal(), matrices))),
        filter_dj_(add_filter(*this, "filter", features, size)) {}

  torch::Tensor forward(const torch::Tensor& x_bcd, CarriedState& carried, bool silu = false,
                        const torch::Tensor& bias_d = {}) {
    return carried.convolve(projection_(x_bcd), {filter_dj_, bias_d, silu});
  }

 private:
  Linear projection_;
  torch::Tensor filter_dj_;
};
TORCH_MODULE(Convolved);

// The bias of a step = softplus(W x + bias): at the start steps are log-uniform from 1e-3 to 1e-1, as published for
// Mamba-2 and Gated DeltaNet, so that states forget slowly.
inline double softplus_to_exp(double logarithm) {  // the x whose softplus is exp(logarithm)
  const double y = std::exp(logarithm);
  return y + std::log(-std::expm1(-y));
}
constexpr Init steps_from_1e_3_to_1e_1{
    .kind = Init::Kind::uniform, .low = -6.907755278982137, .high = -2.302585092994046, .function = softplus_to_exp};

// log A with A from U(1, 16), the rate of decay in Mamba-2 and Gated DeltaNet. The published interval of the latter
// begins at 0, whose logarithm is not finite.
inline double log_of(double x) { return std::log(x); }
constexpr Init log_of_1_to_16{.kind = Init::Kind::uniform, .low = 1, .high = 16, .function = log_of};

torch::Tensor in_wide(const torch::Tensor& x);  // in float32, unless it is float64

// length x / sqrt(|x|^2 + 1e-6), in float32 or wider: 0 stays 0.
torch::Tensor with_length(double length, const torch::Tensor& x_bnck);

}  // namespace metaformer
