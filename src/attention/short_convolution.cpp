// The gated short convolution of LFM2 (Liquid AI 2025): [b | c | u] = W_in x, y = W_out (c * convolution(b * u)).

#include "attention/state_mixer.h"

namespace metaformer {

namespace {

class ShortConvolution : public StateMixer {
 public:
  ShortConvolution(const ShortConvolutionOptions& options, const MixerShape& shape)
      : StateMixer(options, shape, shape.width, /*state=*/0),
        input_(register_module(
            "input", Linear(shape.width, 3 * shape.width, shape.bias, Init::normal(), /*hidden_matrices=*/3))),
        filter_dj_(add_filter(*this, "filter", shape.width, options.convolution)) {}

 protected:
  torch::Tensor read(const torch::Tensor& x_bcd, CarriedState& carried, std::size_t, Pass&) override {
    const auto parts = input_(x_bcd).split(shape().width, 2);
    return parts[1] * carried.convolve(parts[0] * parts[2], {.filter_dj = filter_dj_});
  }

 private:
  Linear input_;
  torch::Tensor filter_dj_;
};

}  // namespace

std::shared_ptr<Mixer> ShortConvolutionOptions::make(const MixerShape& shape) const {
  return std::make_shared<ShortConvolution>(*this, shape);
}

}  // namespace metaformer
