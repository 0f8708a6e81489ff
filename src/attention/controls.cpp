// The two controls of the ablation: a branch that returns its input, and no branch at all. Neither mixes tokens.

#include <algorithm>

#include "attention/mixer.h"
#include "attention/mixers.h"

namespace metaformer {

namespace {

class ControlDecoder : public MixerDecoder {
 public:
  ControlDecoder(float share, std::int64_t count) : share_(share), count_(count) {}
  void resume(MixerState&) override {}
  void step(const float* x_bd, float* y_bd) override {
    std::transform(x_bd, x_bd + count_, y_bd, [&](float x) { return share_ * x; });
  }

 private:
  float share_;
  std::int64_t count_;
};

// A token times `share`, 1 or 0.
class Control : public Mixer {
 public:
  Control(float share, std::int64_t width) : share_(share), width_(width) {}
  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility& visibility, MixerState*,
                        Pass&) override {
    if (share_ == 0) return torch::zeros_like(x_bcd);
    // Padding gives zeros here as in every mixer.
    return visibility.has_segments() ? x_bcd * (visibility.query_segment_bc >= 0).unsqueeze(2) : x_bcd;
  }
  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t) const override {
    return std::make_unique<ControlDecoder>(share_, batch * width_);
  }

 private:
  float share_;
  std::int64_t width_;
};

}  // namespace

template <>
std::shared_ptr<Mixer> make(const IdentityOptions&, const MixerShape& shape) {
  return std::make_shared<Control>(1.0F, shape.width);
}

template <>
std::shared_ptr<Mixer> make(const NoneOptions&, const MixerShape& shape) {
  return std::make_shared<Control>(0.0F, shape.width);
}

}  // namespace metaformer
