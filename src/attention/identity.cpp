// The two controls of the ablation: a branch that returns its input, and no branch at all. Neither mixes tokens.

#include "attention/mixers.h"

namespace metaformer {

namespace {

// Padding gives zeros here as in every mixer.
torch::Tensor without_padding(const torch::Tensor& x_bcd, const Visibility& visibility) {
  if (!visibility.has_segments()) return x_bcd;
  return x_bcd * (visibility.query_segment_bc >= 0).unsqueeze(2);
}

class Identity : public Mixer {
 public:
  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility& visibility,
                        MixerState*) override {
    return without_padding(x_bcd, visibility);
  }
  MixerTraits traits() const override { return {}; }
};

class None : public Mixer {
 public:
  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor&, const Visibility&, MixerState*) override {
    return torch::zeros_like(x_bcd);
  }
  MixerTraits traits() const override { return {}; }
};

}  // namespace

std::shared_ptr<Mixer> make(const IdentityOptions&, const MixerShape&) { return std::make_shared<Identity>(); }

std::shared_ptr<Mixer> make(const NoneOptions&, const MixerShape&) { return std::make_shared<None>(); }

}  // namespace metaformer
