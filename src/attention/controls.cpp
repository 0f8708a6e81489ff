// The two controls of the ablation: a branch that returns its input, and no branch at all. Neither mixes tokens.

#include "attention/controls.h"

#include <algorithm>

#include "attention/mixer.h"
#include "attention/mixer_decoder.h"

namespace metaformer {

namespace {

// Padding gives zeros here as in every mixer.
torch::Tensor without_padding(const torch::Tensor& x_bcd, const Visibility& visibility) {
  if (!visibility.has_segments()) return x_bcd;
  return x_bcd * (visibility.query_segment_bc >= 0).unsqueeze(2);
}

// A token times `share`, 1 or 0.
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

class Identity : public Mixer {
 public:
  explicit Identity(std::int64_t width) : width_(width) {}
  torch::Tensor mix(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility& visibility, MixerState*,
                    Pass&) override {
    return without_padding(x_bcd, visibility);
  }
  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t) const override {
    return std::make_unique<ControlDecoder>(1, batch * width_);
  }

 private:
  std::int64_t width_;
};

class None : public Mixer {
 public:
  explicit None(std::int64_t width) : width_(width) {}
  torch::Tensor mix(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility&, MixerState*, Pass&) override {
    return torch::zeros_like(x_bcd);
  }
  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t) const override {
    return std::make_unique<ControlDecoder>(0, batch * width_);
  }

 private:
  std::int64_t width_;
};

}  // namespace

std::shared_ptr<Mixer> make(const IdentityOptions&, const MixerShape& shape) {
  return std::make_shared<Identity>(shape.width);
}

std::shared_ptr<Mixer> make(const NoneOptions&, const MixerShape& shape) { return std::make_shared<None>(shape.width); }

}  // namespace metaformer
